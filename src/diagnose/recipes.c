/* recipes.c - what to do about functions that are known to take long
 * SPDX-License-Identifier: Apache-2.0
 *
 * A new recipe is a line here: what the function's name begins with, and one short sentence that
 * can be followed as it stands.
 */
#include "diagnose/judging.h"

#include <string.h>

typedef struct recipe {
    const char *begins; /* the function's name */
    const char *holds;  /* something in the rest of it; or NULL */
    const char *todo;
} recipe;

#define ZARR                                                                                       \
    "read windows natively, each chunk decoded once: millhead.Loader(store, window=...); or "      \
    "rewrite the array with chunks that hold what one sample or batch reads"

static const recipe recipes[] = {
    {"PIL.", "resize", "resize(size, reducing_gap=2.0) reduces large images first"},
    {"PIL.ImageFile", NULL,
     "image.draft(\"RGB\", size) before anything else decodes a JPEG at a smaller scale; or store "
     "images at the size you train on"},
    {"PIL.", NULL, "store images at the size you train on, or decode with cv2 or torchvision.io"},
    {"cv2", NULL,
     "cv2.setNumThreads(0) in worker_init_fn; cv2.IMREAD_REDUCED_COLOR_2 decodes less"},
    {"zarr", NULL, ZARR},
    {"numcodecs", NULL, ZARR},
    {"xarray", NULL,
     "load() what fits in memory once, and index NumPy arrays in __getitem__; or read a Zarr store "
     "natively: millhead.Loader(store, window=...)"},
    {"dask", NULL, "dask.config.set(scheduler=\"synchronous\") in workers, chunks as samples read"},
    {"h5py", NULL, "open the file once per worker, and chunk the data as samples read it"},
    {"netCDF4", NULL, "open the file once per worker, and chunk the data as samples read it"},
    {"json", NULL, "parse once and store arrays, or use orjson.loads"},
    {"csv", NULL, "parse once and store arrays or Parquet"},
    {"xml", NULL, "parse once and store arrays or Parquet"},
    {"re.", NULL, "apply the expression once, before training, and store what it finds"},
    {"regex", NULL, "apply the expression once, before training, and store what it finds"},
    {"gzip", NULL, "store the data with zstd or lz4, or unpacked: gzip decodes slowly"},
    {"zipfile", NULL, "unpack the archive, or store its members uncompressed"},
    {"tarfile", NULL, "unpack the archive, or read it in order"},
    {"bz2", NULL, "store the data with zstd or lz4: bz2 decodes slowly"},
    {"lzma", NULL, "store the data with zstd or lz4: xz decodes slowly"},
    {"pickle", NULL, "store arrays (.npy) in place of pickled objects"},
    {"numpy.lib", "load", "np.load(path, mmap_mode=\"r\") reads only what is indexed"},
    {"pandas.core.indexing", NULL,
     "iloc and loc make a Series for each row: rows = frame.to_numpy() once, in __init__, and "
     "rows[i] in __getitem__"},
    {"pandas", NULL, "convert the table to NumPy once, before training"},
    {"pyarrow", NULL, "read whole row groups and keep them, or convert to NumPy once"},
    {"polars", NULL, "convert the table to NumPy once, before training"},
    {"tokenizers", NULL, "tokenize once, before training, or a batch at a time (encode_batch)"},
    {"transformers", NULL, "tokenize once, before training, or a batch at a time"},
    {"requests", NULL,
     "keep one requests.Session per worker, and fetch several samples per request"},
    {"fsspec", NULL, "fetch larger pieces per request, or cache files on a local disk"},
    {"s3fs", NULL, "fetch larger pieces per request, or cache files on a local disk"},
    {"boto", NULL, "keep one client per worker, and fetch several samples per request"},
    {"filelock", NULL, "give each worker a file of its own: the lock lets one work at a time"},
    {"copy.", "copy", "avoid copy.deepcopy in the dataset"},
    {"glob", NULL, "list the files once, in __init__"},
    {"os.walk", NULL, "list the files once, in __init__"},
    {"subprocess", NULL, "start programs once, before training, and store what they make"},
    {"torch.utils.data._utils.fetch", NULL,
     "samples are quick and many: define __getitems__(self, indices) in the dataset, which gets a "
     "batch's samples in one call"},
    {"torchvision.transforms", NULL, "use torchvision.transforms.v2 on tensors, a batch at a time"},
};

const char *mh_recipe_for(const mh_hot *hot)
{
    for (size_t at = 0; hot && at < sizeof recipes / sizeof *recipes; at++) {
        const recipe *one = &recipes[at];
        size_t length = strlen(one->begins);
        if (strncmp(hot->function, one->begins, length) == 0 &&
            (!one->holds || strstr(hot->function + length, one->holds)))
            return one->todo;
    }
    return NULL;
}
