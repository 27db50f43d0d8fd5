#!/bin/sh
# peers.sh - one environment per peer under out/peers, from the locked lists beside this file.
#
# usage: bench/peers.sh [NAME ...]        NAME: torchdata, spdl, grain (default: these three), tensorflow, dali, arrays, cloud
#
# Run `make setup` first: the torchdata, arrays and cloud arms use the project's own torch through a .pth file, so
# that torch is never installed twice. Nothing is resolved; the lists are complete.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
main="$root/.venv/bin/python"
[ -x "$main" ] || { echo "peers.sh: no .venv (run make setup first)" >&2; exit 2; }

install_peer() {
    home="$root/out/peers/$1"
    list="$root/bench/requirements-$1.txt"
    [ -f "$list" ] || { echo "peers.sh: unknown peer '$1'" >&2; exit 2; }
    [ -x "$home/bin/python" ] || "$main" -m venv "$home"
    "$home/bin/python" -m pip install --quiet --no-deps -r "$list"
    if [ "$1" = torchdata ] || [ "$1" = arrays ] || [ "$1" = cloud ]; then
        site='import sysconfig; print(sysconfig.get_path("purelib"))'
        "$main" -c "$site" > "$("$home/bin/python" -c "$site")/main-environment.pth"
    fi
    echo "peers.sh: $1 ready"
}

[ $# -gt 0 ] || set -- torchdata spdl grain
for peer in "$@"; do
    install_peer "$peer"
done
if ! ldconfig -p | grep -q 'libavdevice\.so\.59'; then
    echo "peers.sh: SPDL's own decoder also needs: apt-get install libavdevice59 libavfilter8" >&2
fi
