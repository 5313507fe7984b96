"""Tiny data sets in the original formats, with digests of their own: what tests publish, damage and serve."""

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading

import numpy as np

from fedroster.lab.data.load import PublishedData, read_batches, read_idx


def md5(content):
    return hashlib.md5(content).hexdigest()


def idx(values):
    values = np.asarray(values, np.uint8)
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def samples(number, shape, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (number, *shape), np.uint8), rng.permutation(np.arange(number) % 10).astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class Published:
    """A source, what is downloaded of it, and the samples."""

    source: PublishedData
    files: dict[str, bytes]
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    def write(self, folder, names=None):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or self.files:
            (folder / name).write_bytes(self.files[name])
        return folder

    def served_at(self, *addresses):
        """Its source, to be had at these addresses."""
        return dataclasses.replace(self.source, addresses=addresses)


@contextlib.contextmanager
def serving(folder):
    """A server on loopback that gives the files of a folder: its address, and the paths that were asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tiny_mnist(*, seed=0):
    """MNIST's files: 60 and 20 images of 5 x 4 pixels."""
    train, test = samples(60, (5, 4), seed), samples(20, (5, 4), seed + 100)
    files = {}
    for name, values in (
        ("train-images-idx3-ubyte", train[0]),
        ("train-labels-idx1-ubyte", train[1]),
        ("t10k-images-idx3-ubyte", test[0]),
        ("t10k-labels-idx1-ubyte", test[1]),
    ):
        files[f"{name}.gz"] = gzip.compress(idx(values), mtime=0)
    source = PublishedData("Tiny", {name: md5(packed) for name, packed in files.items()}, 2, read_idx, "tiny")
    return Published(source, files, (train[0][:, None], train[1]), (test[0][:, None], test[1]))


def tar(files, *, folder):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def tiny_cifar():
    """CIFAR-10's batches and their archive: two training batches of 7 images, a test batch of 5."""
    parts = [samples(number, (3, 32, 32), place) for place, number in enumerate((7, 7, 5))]
    names = ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin")
    batches = {
        name: np.concatenate([labels[:, None], images.reshape(len(labels), -1)], axis=1).tobytes()
        for name, (images, labels) in zip(names, parts, strict=True)
    }
    # Beside them what the original also holds.
    packed = gzip.compress(tar({"readme.html": b"<html>", **batches}, folder="tiny-bin"), mtime=0)
    source = PublishedData(
        "Tiny CIFAR",
        {name: md5(content) for name, content in batches.items()},
        1,
        read_batches,
        "tiny-bin",
        archive=("tiny-bin.tar.gz", md5(packed)),
    )
    train = tuple(np.concatenate(both) for both in zip(*parts[:2], strict=True))
    return Published(source, batches | {"tiny-bin.tar.gz": packed}, train, parts[2])
