#!/usr/bin/env python3
"""Writes the first seeds of the shard fuzzer (needs python3-h5py). Usage: tests/fuzz/make_shards.py FOLDER

Small shards as gpt_data and others write them, and some that no one should write.
"""
import sys

import h5py
import numpy as np


def plain(f):
    f["tokens"] = np.arange(20, dtype="u2")


def ours(f):
    f["tokens"] = np.array([5, 6, 7, 0, 8, 0], dtype="u2")
    f["document_offsets"] = np.array([0, 4, 6], dtype="u8")
    f["document_bytes"] = np.array([9, 3], dtype="u8")
    for name, value in {"format_version": 1, "vocab_size": 300, "eod_id": 0, "text_bytes": 12}.items():
        f.attrs[name] = value
    f.attrs["tokenizer_sha256"] = np.bytes_("ab" * 32)


def chunked_2d(f):
    f.create_dataset("input_ids", data=np.arange(24, dtype=">i4").reshape(4, 6), chunks=(2, 3), compression="gzip")


def variable_string(f):
    plain(f)
    f.attrs["tokenizer_sha256"] = "variable"


def string_array(f):
    plain(f)
    f.attrs.create("tokenizer_sha256", np.array([b"ab" * 32] * 9))


def variable_string_array(f):
    plain(f)
    f.attrs.create("tokenizer_sha256", np.array(["one", "two"], dtype=object), dtype=h5py.string_dtype())


def integer_array_attribute(f):
    ours(f)
    f.attrs["eod_id"] = np.arange(3)


def sparse(f):
    f.create_dataset("tokens", shape=(2**40,), dtype="u2", chunks=(64,))


def sparse_documents(f):
    plain(f)
    offsets = f.create_dataset("document_offsets", shape=(2**40,), dtype="u8", chunks=(16,))
    offsets[2**40 - 1] = 20


def sparse_wide_rows(f):
    f.create_dataset("tokens", shape=(2, 2**50), dtype="u2", chunks=(1, 64))


def overflowing_extent(f):
    f.create_dataset("tokens", shape=(2**40, 2**40), dtype="u2", chunks=(1, 64))


def scalar(f):
    f["tokens"] = 5


def floats(f):
    f["tokens"] = np.zeros(4)


def compact(f):
    space = h5py.h5s.create_simple((8,))
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(h5py.h5d.COMPACT)
    dataset = h5py.h5d.create(f.id, b"tokens", h5py.h5t.STD_U16LE, space, creation)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(8, dtype="u2"))


def soft_link(f):
    f["ids"] = np.arange(8, dtype="u4")
    f["tokens"] = h5py.SoftLink("/ids")


def external_link(f):
    f["tokens"] = h5py.ExternalLink("/nonexistent.h5", "tokens")


if __name__ == "__main__":
    folder = sys.argv[1]
    for build in (plain, ours, chunked_2d, variable_string, string_array, variable_string_array, integer_array_attribute,
                  sparse, sparse_documents, sparse_wide_rows, overflowing_extent, scalar, floats, compact, soft_link,
                  external_link):
        with h5py.File(f"{folder}/{build.__name__}", "w") as file:
            build(file)
    for build in (plain, chunked_2d):
        with h5py.File(f"{folder}/{build.__name__}_latest", "w", libver="latest") as file:
            build(file)
