"""Finding, checking and reading published files, on tiny data sets with digests of their own."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import tarfile

import numpy as np
import pytest

from fedroster.core.errors import DataFileError, MissingDataError
from fedroster.data.source import check, decompress, locate, read, require
from published import binary_batch, md5, samples, tar, tiny_cifar, tiny_mnist

MNIST = tiny_mnist()
CIFAR = tiny_cifar()
IMAGES = "train-images-idx3-ubyte.gz"
LABELS = "train-labels-idx1-ubyte.gz"
BINARY = ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"]
PYTHON = ["data_batch_1", "data_batch_2", "test_batch"]


def load(published, folder):
    return read(published.source, require(published.source, folder))


def same(dataset, published):
    for found_x, found_y, (images, labels) in (
        (dataset.train_x, dataset.train_y, published.train),
        (dataset.test_x, dataset.test_y, published.test),
    ):
        assert (found_x.dtype, found_y.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(found_x, (images / 255.0).astype(np.float32))
        np.testing.assert_array_equal(found_y, labels)
    assert (dataset.name, dataset.num_classes) == (published.source.name, published.source.num_classes)


# ----------------------------------------------------------------- where it lies


@pytest.mark.parametrize("place", ["tiny", ""])
def test_idx_in_a_sub_folder_or_directly(tmp_path, place):
    MNIST.write(tmp_path / place)
    same(load(MNIST, tmp_path), MNIST)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("cifar-10-batches-bin", BINARY),
        ("", BINARY),
        ("cifar-10-batches-py", PYTHON),
        ("", PYTHON),
        ("", ["cifar-10-bin.tar.gz"]),
        ("", ["cifar-10-py.tar.gz"]),
    ],
)
def test_every_layout_of_cifar_is_the_same_data(tmp_path, place, names):
    CIFAR.write(tmp_path / place, names)
    same(load(CIFAR, tmp_path), CIFAR)


def test_a_sub_folder_goes_before_the_folder_itself(tmp_path):
    tiny_mnist(seed=5).write(tmp_path)
    MNIST.write(tmp_path / "tiny")
    same(load(MNIST, tmp_path), MNIST)


def test_files_go_before_an_archive_and_a_half_layout_is_passed_over(tmp_path):
    CIFAR.write(tmp_path, ["cifar-10-py.tar.gz"])
    CIFAR.write(tmp_path / "cifar-10-batches-bin", BINARY[:2])
    assert list(locate(CIFAR.source, tmp_path).paths) == ["cifar-10-py.tar.gz"]
    same(load(CIFAR, tmp_path), CIFAR)


def test_missing_says_where_it_was_looked_for(tmp_path):
    MNIST.write(tmp_path, [IMAGES, LABELS])
    assert locate(MNIST.source, tmp_path) is None
    with pytest.raises(MissingDataError) as raised:
        require(MNIST.source, tmp_path)
    message = str(raised.value)
    assert f"in {tmp_path / 'tiny'}: no such folder" in message
    assert f"in {tmp_path}: lacks t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz" in message
    assert "FEDROSTER_DATA" in message
    assert "fedroster data fetch tiny" in message
    assert isinstance(raised.value, FileNotFoundError)
    (tmp_path / "tiny").mkdir()
    with pytest.raises(MissingDataError, match=f"has no {IMAGES} and 3 others"):
        require(MNIST.source, tmp_path)


def test_a_folder_with_a_files_name_is_no_file(tmp_path):
    MNIST.write(tmp_path)
    (tmp_path / IMAGES).unlink()
    (tmp_path / IMAGES).mkdir()
    with pytest.raises(MissingDataError, match=f"lacks {IMAGES}"):
        require(MNIST.source, tmp_path)


# ----------------------------------------------------------------- other bytes, same content


def test_unpacked_and_compressed_anew(tmp_path):
    MNIST.write(tmp_path)
    content = gzip.decompress(MNIST.files[IMAGES])
    (tmp_path / IMAGES).unlink()
    (tmp_path / IMAGES.removesuffix(".gz")).write_bytes(content)  # unpacked
    (tmp_path / LABELS).write_bytes(gzip.compress(gzip.decompress(MNIST.files[LABELS]), 1, mtime=1))  # again
    test_x, test_y = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
    plain = gzip.decompress(MNIST.files[test_x])
    (tmp_path / test_x).write_bytes(gzip.compress(plain[:50]) + gzip.compress(plain[50:]))  # in pieces
    (tmp_path / test_y).write_bytes(gzip.decompress(MNIST.files[test_y]))  # unpacked by a browser, name kept
    same(load(MNIST, tmp_path), MNIST)
    found = check(MNIST.source, locate(MNIST.source, tmp_path))
    assert [(one.fault, one.repacked) for one in found] == [("", True)] * 4
    MNIST.write(tmp_path)
    assert not any(one.repacked for one in check(MNIST.source, locate(MNIST.source, tmp_path)))


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_packed_anew(tmp_path, packed):
    content = tar({name: CIFAR.files[name] for name in BINARY}, folder="./cifar-10-batches-bin")
    (tmp_path / "cifar-10-bin.tar.gz").write_bytes(gzip.compress(content, 1, mtime=3) if packed else content)
    same(load(CIFAR, tmp_path), CIFAR)
    (found,) = check(CIFAR.source, locate(CIFAR.source, tmp_path))
    assert (found.fault, found.repacked) == ("", True)


# ----------------------------------------------------------------- damage


def damaged(tmp_path, name, content):
    MNIST.write(tmp_path)
    (tmp_path / name).write_bytes(content)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    (found,) = [one for one in check(MNIST.source, locate(MNIST.source, tmp_path)) if one.fault]
    with pytest.raises(DataFileError) as raised:
        load(MNIST, tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert str(tmp_path / name) in str(raised.value)
    assert str(tmp_path / name) in found.fault
    return str(raised.value)


PLAIN = gzip.decompress(MNIST.files[IMAGES])
OTHER = bytearray(PLAIN)
OTHER[-1] ^= 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MNIST.files[IMAGES][:-9], "is truncated: its compressed content ends"),
        (MNIST.files[IMAGES][:300], "is truncated: its compressed content ends"),
        (MNIST.files[IMAGES][:1], "is truncated"),
        (PLAIN[:-1], "is truncated: it holds 1215 bytes; expected 1216"),
        (gzip.compress(PLAIN[:-1]), "is truncated: it holds 1215 bytes"),
        (PLAIN + b"\0", "holds 1217 bytes; expected 1216"),
        (gzip.compress(MNIST.files[IMAGES]), "is compressed twice"),
        (gzip.compress(gzip.compress(MNIST.files[IMAGES])), "is compressed twice"),
        (bytes(OTHER), f"is not the published file: its MD5 is {md5(bytes(OTHER))}; expected {md5(PLAIN)}"),
        (gzip.compress(bytes(OTHER)), "is not the published file"),
        (MNIST.files[IMAGES][:100] + b"\0" * 50 + MNIST.files[IMAGES][150:], "is damaged"),
        (b"<html>Sign in to the network</html>", "is truncated: it holds 35 bytes; expected 1216"),
        (gzip.compress(bytes(10**7)), "holds more than 1049815 bytes; expected fewer"),
        (b"", "is truncated"),
    ],
)
def test_damaged_images(tmp_path, content, message):
    assert message in damaged(tmp_path, IMAGES, content)


def test_the_files_of_another_data_set(tmp_path):
    other = tiny_mnist(seed=9)
    known = {
        digest: "Other" for name, file in other.files.items() for digest in (md5(file), md5(gzip.decompress(file)))
    }
    source = dataclasses.replace(MNIST.source, lookalikes=known)
    other.write(tmp_path)
    with pytest.raises(DataFileError, match="belongs to Other: give each data set a sub-folder"):
        read(source, require(source, tmp_path))
    with pytest.raises(DataFileError, match="is not the published file"):
        load(MNIST, tmp_path)


@pytest.mark.parametrize(
    ("names", "content", "message"),
    [
        (BINARY, CIFAR.files["data_batch_1.bin"][:-1], "is truncated"),
        (BINARY, CIFAR.files["data_batch_1.bin"][: 5 * 3073], "is truncated: it holds 15365 bytes; expected 21511"),
        (BINARY, CIFAR.files["data_batch_1.bin"] + bytes(3073), "holds 24584 bytes; expected 21511"),
        (BINARY, CIFAR.files["data_batch_2.bin"], "is not the published file"),
        (BINARY, binary_batch(samples(7, (3, 32, 32), 0)[0], np.full(7, 10, np.uint8)), "is not the published file"),
        (PYTHON, CIFAR.files["data_batch_1"][:-1], "is truncated"),
        (PYTHON, CIFAR.files["data_batch_2"], "is not the published file"),
    ],
)
def test_damaged_batches(tmp_path, names, content, message):
    CIFAR.write(tmp_path, names)
    (tmp_path / names[0]).write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        load(CIFAR, tmp_path)
    faults = [one.fault for one in check(CIFAR.source, locate(CIFAR.source, tmp_path))]
    assert [bool(fault) for fault in faults] == [True, False, False]


def archive_of(**changes):
    files = {name: CIFAR.files[name] for name in BINARY} | {f"{name}.bin": new for name, new in changes.items()}
    return gzip.compress(
        tar({name: content for name, content in files.items() if content}, folder="cifar-10-batches-bin")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CIFAR.files["cifar-10-bin.tar.gz"][:-20], "is truncated: its compressed content"),
        (gzip.compress(CIFAR.files["cifar-10-bin.tar.gz"]), "is compressed twice"),
        (gzip.compress(b"no archive"), "is truncated or no tar archive"),
        (b"no archive", "is truncated or no tar archive"),
        (gzip.decompress(CIFAR.files["cifar-10-bin.tar.gz"])[:30000], "is truncated"),
        (archive_of(test_batch=None), "lacks cifar-10-batches-bin/test_batch.bin"),
        (archive_of(test_batch=CIFAR.files["data_batch_1.bin"]), "test_batch.bin holds 21511 bytes; expected 15365"),
        (archive_of(data_batch_1=CIFAR.files["data_batch_2.bin"]), "data_batch_1.bin is not the published file"),
    ],
    # Not the content: it holds the time at which it was compressed.
    ids=["cut", "twice", "no-tar", "no-gzip", "cut-tar", "file-missing", "other-size", "other-file"],
)
def test_damaged_archive(tmp_path, content, message):
    path = tmp_path / "cifar-10-bin.tar.gz"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=message) as raised:
        load(CIFAR, tmp_path)
    assert str(path) in str(raised.value)
    (found,) = check(CIFAR.source, locate(CIFAR.source, tmp_path))
    assert found.fault == str(raised.value)


def test_links_and_folders_within_an_archive_are_not_followed(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in BINARY:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(member)
    (tmp_path / "cifar-10-bin.tar.gz").write_bytes(out.getvalue())
    with pytest.raises(DataFileError, match="lacks cifar-10-batches-bin/data_batch_1"):
        load(CIFAR, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path):
    MNIST.write(tmp_path)
    (tmp_path / IMAGES).chmod(0)
    assert "denied" in check(MNIST.source, locate(MNIST.source, tmp_path))[0].fault
    with pytest.raises(PermissionError):
        load(MNIST, tmp_path)


def test_decompress_stops_at_its_limit():
    packed = gzip.compress(bytes(1000))
    assert decompress(packed, name="x", limit=1000) == bytes(1000)
    with pytest.raises(DataFileError, match="x holds more than 999 bytes"):
        decompress(packed, name="x", limit=999)


# ----------------------------------------------------------------- what is foreign is not looked into


@pytest.mark.parametrize("names", [BINARY, PYTHON, ["cifar-10-py.tar.gz"]], ids=str)
def test_a_foreign_file_is_not_looked_into(tmp_path, names):
    """It may be anything; its digest is compared first."""
    CIFAR.write(tmp_path, names)
    other = tiny_cifar(seed=9)
    seen = []

    def read_batch(batch):
        seen.append(batch)
        raise AssertionError("it is looked into")

    source = dataclasses.replace(
        other.source, layouts=tuple(dataclasses.replace(each, read=read_batch) for each in other.source.layouts)
    )
    with pytest.raises(DataFileError, match="is not the published file"):
        read(source, require(source, tmp_path))
    assert not seen


@pytest.mark.parametrize("name", ["data_batch_1", "cifar-10-py.tar.gz"])
def test_a_file_that_is_much_too_large_is_not_read(tmp_path, name):
    CIFAR.write(tmp_path, PYTHON if name in PYTHON else [name])
    with (tmp_path / name).open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no disk
    with pytest.raises(DataFileError, match=f"{name} holds 1099511627776 bytes; expected at most"):
        load(CIFAR, tmp_path)
    (fault,) = {found.fault for found in check(CIFAR.source, locate(CIFAR.source, tmp_path)) if found.fault}
    assert "1099511627776 bytes" in fault
