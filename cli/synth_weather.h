/* synth_weather.h - millhead synth weather: a cube of weather as a Zarr store
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_CLI_SYNTH_WEATHER_H
#define MILLHEAD_CLI_SYNTH_WEATHER_H

/* argv[0] is "weather". An exit code of the command. */
int mh_synth_weather(int argc, char **argv);

#endif
