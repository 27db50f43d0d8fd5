"""Data behind http(s) and in S3, from real servers: nginx and `rclone serve s3`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
from helpers import servers
from helpers.command import COMMAND

SAMPLES = 500
CANARY = "canaryCANARY0123456789"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two arrays in what is a folder, the files of a web server and a bucket."""
    root = tmp_path_factory.mktemp("data")
    bucket = root / "bucket"
    (bucket / "dt=2024 +1").mkdir(parents=True)
    draw = np.random.default_rng(7)
    np.save(bucket / "x.npy", draw.integers(0, 255, (SAMPLES, 5000), dtype=np.uint8))
    np.save(bucket / "y.npy", draw.integers(0, 9, SAMPLES))
    np.save(bucket / "dt=2024 +1" / "é~(1).npy", np.arange(30))
    # larger than a request: it is read in parts
    np.save(bucket / "large.npy", draw.integers(0, 255, (2, 20_000_000), dtype=np.uint8))
    return bucket


@pytest.fixture(scope="module")
def web(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    locations = """
        location /moved/ { rewrite ^/moved/(.*)$ /$1?signature=secret redirect; }
        location /round { return 302 /round; }
        location /metadata { return 302 http://169.254.169.254/latest/; }
        location /private/ { return 403; }
        location /unranged/ { alias FILES/; max_ranges 0; }
        location /gzipped/ { alias FILES/; gzip on; gzip_types *; add_header Content-Encoding br; }
    """.replace("FILES", str(files))
    with servers.nginx(tmp_path_factory.mktemp("nginx"), files, locations) as address:
        yield address


@pytest.fixture(scope="module")
def s3(files: Path) -> Iterator[str]:
    with servers.s3(files.parent) as address:
        yield address


@pytest.fixture(autouse=True)
def no_aws_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def keys(endpoint: str, **others: Any) -> dict[str, Any]:
    return {"key": servers.KEY, "secret": servers.SECRET, "endpoint_url": endpoint, **others}


def batches(data: Any, **arguments: Any) -> dict[str, np.ndarray[Any, Any]]:
    """All batches of an epoch, joined."""
    with millhead.Loader(data, 16, output="numpy", **arguments) as loader:
        parts = list(loader)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def assert_equal_local(files: Path, remote: Any, names: list[str], **arguments: Any) -> None:
    local = batches([files / name for name in names], shuffle=True, seed=3)
    got = batches(remote, shuffle=True, seed=3, **arguments)
    assert list(got) == list(local)
    for name, values in local.items():
        np.testing.assert_array_equal(got[name], values)


def failure(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """What the command says, in one line, where it must fail."""
    done = subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_web_server_gives_the_same_batches_as_files(files: Path, web: str) -> None:
    assert_equal_local(files, [f"{web}/x.npy", f"{web}/y.npy"], ["x.npy", "y.npy"])


def test_s3_gives_the_same_batches_as_files(files: Path, s3: str) -> None:
    names = ["x.npy", "y.npy"]
    data = [f"s3://bucket/{name}" for name in names]
    assert_equal_local(files, data, names, storage_options=keys(s3), in_flight=64)


def test_reads_in_order_are_joined(files: Path, web: str, tmp_path: Path) -> None:
    with servers.nginx(tmp_path, files) as address:
        got = batches(f"{address}/x.npy")
        requests = (tmp_path / "access").read_text().count("GET /x.npy")
    np.testing.assert_array_equal(got["x"], np.load(files / "x.npy"))
    assert requests < SAMPLES / 2


def test_large_reads_are_split(files: Path, tmp_path: Path) -> None:
    with servers.nginx(tmp_path, files) as address:
        data = millhead.open(f"{address}/large.npy", output="numpy")
        np.testing.assert_array_equal(data[1]["large"], np.load(files / "large.npy")[1])
        log = (tmp_path / "access").read_text()
    assert log.count(" 206") >= 3  # of 8 MiB each


def test_names_that_need_encoding_are_read(files: Path, web: str, s3: str) -> None:
    name = "dt=2024 +1/é~(1).npy"
    data = millhead.open(f"s3://bucket/{name}", storage_options=keys(s3), output="numpy")
    assert int(data[29]["é~(1)"]) == 29
    data = millhead.open(f"{web}/{name}", output="numpy")
    assert int(data[29]["é~(1)"]) == 29


def test_redirects_are_followed(files: Path, web: str) -> None:
    assert_equal_local(files, f"{web}/moved/x.npy", ["x.npy"])


def test_credentials_come_from_the_environment_and_from_profiles(
    s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = {"endpoint_url": s3}
    with pytest.raises(FileNotFoundError, match="no credentials for S3: set AWS_ACCESS_KEY_ID"):
        millhead.open("s3://bucket/y.npy", storage_options=place)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
        f"[two]\naws_access_key_id = {servers.KEY}\naws_secret_access_key={servers.SECRET}\n"
    )
    (tmp_path / ".aws" / "config").write_text(f"[profile two]\nendpoint_url = {s3}\n")
    assert len(millhead.open("s3://bucket/y.npy", storage_options={"profile": "two"})) == SAMPLES
    with pytest.raises(OSError, match="does not know this access key"):
        millhead.open("s3://bucket/y.npy", storage_options=place)
    with pytest.raises(FileNotFoundError, match="there is no profile 'three'"):
        millhead.open("s3://bucket/y.npy", storage_options={**place, "profile": "three"})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
    assert len(millhead.open("s3://bucket/y.npy", storage_options=place)) == SAMPLES


@pytest.mark.parametrize(
    ("data", "storage", "says"),
    [
        ("s3://bucket/y.npy", "secret=wrong", "the secret does not belong to the access key"),
        ("s3://bucket/none.npy", "", "there is no such object"),
        ("s3://nobucket/y.npy", "", "there is no such bucket: check its name, endpoint_url="),
        ("s3:///y.npy", "", "has no bucket: write s3://BUCKET/KEY"),
        ("s3://bucket/y.npy", "endpoint_url=host", "endpoint_url must be http(s)://HOST[:PORT]"),
        ("s3://bucket/y.npy", "regoin=x", "unknown storage option 'regoin'"),
        ("{web}/none.npy", "", "there is no {web}/none.npy"),
        ("{web}/private/y.npy", "", "access denied: it is not public"),
        ("{web}/round", "", "redirects too often"),
        ("{web}/metadata", "", "leads to a link-local address: set the storage option link_local"),
        ("{web}/unranged/y.npy", "timeout=1", "gives whole objects only, no ranges"),
        ("{web}/gzipped/y.npy", "timeout=1", "the server sends it compressed"),
        ("http://169.254.1.1/y.npy", "", "leads to a link-local address"),
        ("http://127.0.0.1:1/y.npy", "timeout=1", "cannot reach the server"),
        ("http://host.invalid/y.npy", "timeout=1", "cannot reach the server"),
        ("http:///y.npy", "", "has no host: write https://HOST/PATH"),
        ("ftp://host/y.npy", "", "ftp:// is not supported"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_what_to_change(
    web: str, s3: str, data: str, storage: str, says: str
) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": servers.KEY,
        "AWS_SECRET_ACCESS_KEY": "wrong-secret" if "secret" in storage else servers.SECRET,
        "AWS_ENDPOINT_URL_S3": s3,
    }
    options = ["--storage", storage] if storage and "secret" not in storage else []
    said = failure("read", data.format(web=web), *options, environment=environment)
    assert says.format(web=web) in said


def test_wrong_certificates_are_refused_and_the_right_one_is_taken(
    files: Path, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [*make.split(), "-out", str(certificate), "-keyout", str(key), *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with servers.nginx(tmp_path, files, certificate=(certificate, key)) as address:
        assert address.startswith("https://")
        assert "certificate does not verify" in failure("read", f"{address}/y.npy")
        wrong = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
        assert "certificate does not verify" in failure(
            "read", f"{address}/y.npy", environment=wrong
        )
        trusted = {"ca_file": str(certificate)}
        assert_equal_local(files, f"{address}/x.npy", ["x.npy"], storage_options=trusted)


def test_no_secret_is_shown_wherever_it_was_given(
    web: str, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = keys(s3, secret=CANARY, token=CANARY, key=f"AKIA{CANARY}")
    said = []
    for data, options in [
        ("s3://bucket/y.npy", storage),
        (f"{web.replace('://', f'://me:{CANARY}@')}/private/y.npy", {}),
        (f"{web}/none.npy?X-Amz-Signature={CANARY}", {}),
        (f"http://u:{CANARY}@127.0.0.1:1/y.npy?token={CANARY}", {"timeout": 1}),
        ("s3://bucket/y.npy", {**storage, "endpoint_url": f"http://x:{CANARY}@127.0.0.1:1"}),
        ("s3://bucket/y.npy", {**storage, "anon": CANARY}),
    ]:
        with pytest.raises((OSError, ValueError)) as raised:
            millhead.open(data, storage_options={"timeout": 1, **options})
        said.append(str(raised.value))
    environment = {
        "AWS_ACCESS_KEY_ID": f"AKIA{CANARY}",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": CANARY,
    }
    arguments = ("read", "s3://bucket/y.npy", "--storage", f"endpoint_url={s3},timeout=1")
    said.append(failure(*arguments, environment=environment))
    assert len(said) == 7
    assert [text for text in said if CANARY in text] == []


def test_a_dataset_of_a_url_works_in_a_forked_child(web: str) -> None:
    data = millhead.open(f"{web}/y.npy", output="numpy")
    first = int(data[3]["y"])
    child = os.fork()
    if child == 0:
        os._exit(0 if int(data[3]["y"]) == first else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_object_that_is_rewritten_is_an_error_never_a_mix(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    np.save(files / "x.npy", np.zeros((100, 1000), np.uint8))
    with servers.nginx(tmp_path, files) as address:
        data = millhead.open(f"{address}/x.npy", output="numpy")
        assert not data[0]["x"].any()
        np.save(files / "new.npy", np.ones((101, 1000), np.uint8))
        (files / "new.npy").rename(files / "x.npy")
        with pytest.raises(OSError, match="changed"):
            data[1]


def test_the_list_of_sources_names_them(web: str) -> None:
    done = subprocess.run([COMMAND, "list", "--json"], capture_output=True, check=True, timeout=60)
    names = [source["name"] for source in json.loads(done.stdout)["sources"]]
    assert {"file", "http", "s3"} <= set(names)
