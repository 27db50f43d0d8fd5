"""Who asks S3, and what becomes of it: moto checks keys and policies, and a gateway ends keys early.

AWS's own errors, web identities, EC2's metadata service, keys that end during an epoch, regions,
the two styles of addresses, and proxies.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
from helpers import aws
from helpers.aws import Account, Gateway, Refusal
from helpers.command import COMMAND

SAMPLES = 24
SIZE = 4000
PLACES = 3  # of a loader, each with its own keys: what opens, what is opened, what reads


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


X = np.random.default_rng(3).integers(0, 255, (SAMPLES, SIZE), dtype=np.uint8)


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    files = {name: npy(X) for name in ("x.npy", "folder/x.npy", "public/x.npy")}
    with aws.account(files) as made:
        yield made


@pytest.fixture(autouse=True)
def clean(nothing_left: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody is known, and no proxy."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def gate(account: Account, clean: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    with aws.gateway(account) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", made.address)
        yield made


@pytest.fixture
def web_identity(gate: Gateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(aws.web_token("job") + "\n")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", aws.ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", gate.address)


@pytest.fixture
def machine(gate: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", gate.address)


def set_keys(monkeypatch: pytest.MonkeyPatch, keys: aws.Keys) -> None:
    for name, value in keys.environment.items():
        monkeypatch.setenv(name, value)


def inspect(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [COMMAND, "inspect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refusal_of(*arguments: str) -> str:
    """The one line that the command says where it must fail."""
    done = inspect(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def epoch(loader: millhead.Loader) -> np.ndarray[Any, Any]:
    return np.concatenate([batch["x"] for batch in loader])


def loader(path: str = "s3://bucket/x.npy", **storage: Any) -> millhead.Loader:
    return millhead.Loader(path, 2, output="numpy", in_flight=4, storage_options=storage)


def assert_reads(path: str = "s3://bucket/x.npy", **storage: Any) -> None:
    with loader(path, **storage) as opened:
        np.testing.assert_array_equal(epoch(opened), X)


# --- AWS's own errors ---


@pytest.mark.parametrize(
    ("path", "wrong", "error", "says"),
    [
        ("bucket/x.npy", {"key": "AKIAUNKNOWN"}, OSError, "check key= or AWS_ACCESS_KEY_ID"),
        ("bucket/x.npy", {"secret": "wrong"}, OSError, "check secret= or AWS_SECRET_ACCESS_KEY"),
        ("bucket/x.npy", {"token": "wrong"}, OSError, "check token= or AWS_SESSION_TOKEN"),
        ("nobucket/x.npy", {}, FileNotFoundError, "no such bucket: check its name, endpoint_url="),
        ("nobucket/folder/", {}, FileNotFoundError, "no such bucket: check its name"),
        ("bucket/none.npy", {}, FileNotFoundError, "there is no such object"),
        ("bucket/nothing/", {}, FileNotFoundError, "there is no such object"),
    ],
)
def test_what_aws_refuses_is_one_line_that_names_what_to_change(
    gate: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    wrong: dict[str, str],
    error: type[Exception],
    says: str,
) -> None:
    keys = gate.account.reader
    set_keys(monkeypatch, aws.Keys(**{"key": keys.key, "secret": keys.secret, **wrong}))
    said = refusal_of(f"s3://{path}")
    assert f"s3://{path}: " in said
    assert says in said
    with pytest.raises(error, match=says):
        millhead.open(f"s3://{path}")


@pytest.mark.parametrize("path", ["s3://bucket/x.npy", "s3://bucket/folder/"])
def test_who_may_not_read_is_told_so(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    set_keys(monkeypatch, gate.account.nobody)
    says = "access denied: these credentials may not read it: check the bucket's policy"
    assert says in refusal_of(path)
    with pytest.raises(PermissionError, match="access denied"):
        millhead.open(path)


def test_public_data_needs_no_keys(gate: Gateway) -> None:
    assert_reads("s3://bucket/public/x.npy", anon=True)
    assert gate.keys_used() == {""}
    assert "it is not public: give key=" in refusal_of(
        "s3://bucket/x.npy", "--storage", "anon=true"
    )
    assert "no credentials for S3: set AWS_ACCESS_KEY_ID" in refusal_of("s3://bucket/x.npy")


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (Refusal(403, "RequestTimeTooSkewed"), "clock differs too much from the server's: set"),
        (Refusal(400, "ExpiredToken"), "get a new one and set token= or AWS_SESSION_TOKEN"),
        (Refusal(400, "TokenRefreshRequired"), "get a new one and set token="),
        (Refusal(403, "InvalidObjectState"), "in an archive (Glacier): restore it first"),
        (Refusal(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-west-1"}), "=eu-west-1 "),
        (Refusal(307, "TemporaryRedirect", {"Location": "http://h/"}), "in another region: set"),
    ],
)
def test_what_moto_does_not_say_is_one_line_too(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch, refusal: Refusal, says: str
) -> None:
    set_keys(monkeypatch, aws.Keys("AKIAKNOWN", "secret", "session"))
    gate.refuse = lambda what, headers: refusal
    assert says in refusal_of("s3://bucket/x.npy")
    assert gate.count("s3") <= 8


def test_a_bucket_of_another_region_is_read_once_that_is_named(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_keys(monkeypatch, gate.account.reader)

    def of_eu_west(what: str, headers: Any) -> Refusal | None:
        if "/eu-west-1/s3/aws4_request" in headers["Authorization"]:
            return None
        return Refusal(400, "AuthorizationHeaderMalformed", more="<Region>eu-west-1</Region>")

    gate.refuse = of_eu_west
    says = "the bucket is in another region: set region=eu-west-1"
    assert says in refusal_of("s3://bucket/x.npy")
    with pytest.raises(OSError, match=says):
        millhead.open("s3://bucket/x.npy", storage_options={"region": "us-west-2"})
    assert_reads(region="eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert_reads()


# --- addresses ---


def test_both_styles_of_addresses_are_signed_as_they_are_asked(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_keys(monkeypatch, gate.account.reader)
    named = gate.address.replace("127.0.0.1", "localhost")
    for style, asked in [
        ("path", {("localhost", "/bucket/x.npy")}),
        ("virtual", {("localhost", "/bucket/x.npy"), ("bucket.localhost", "/x.npy")}),
    ]:
        assert_reads(endpoint_url=f"{named}/", style=style)
        assert {(seen.host.split(":")[0], seen.path) for seen in gate.seen} == asked


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Of AWS in eu-west-1, and nobody trusts it."""
    names = ["bucket.s3", "s3", "sts"]
    hosts = ",".join(f"DNS:{name}.eu-west-1.amazonaws.com" for name in names)
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=aws", "-addext", f"subjectAltName={hosts}"]
    command = [*make.split(), "-out", str(made), "-keyout", str(key), *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made, key


def test_aws_is_reached_through_a_proxy_by_its_own_names(
    account: Account,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text(aws.web_token("job"))
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", aws.ROLE)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with aws.gateway(account, certificate) as proxy:
        monkeypatch.setenv("https_proxy", proxy.address)
        assert_reads(ca_file=str(certificate[0]))
        assert {(seen.what, seen.host, seen.proxied) for seen in proxy.seen} == {
            ("sts", "sts.eu-west-1.amazonaws.com", True),
            ("s3", "bucket.s3.eu-west-1.amazonaws.com", True),
        }
        # a dot has no place in the certificate's name
        storage = ["--storage", f"ca_file={certificate[0]}"]
        assert "no such bucket" in refusal_of("s3://with.dot/x.npy", *storage)
        assert proxy.seen[-1].host == "s3.eu-west-1.amazonaws.com"
        # the answer for credentials is checked as those of data are
        said = refusal_of("s3://bucket/x.npy")
        assert "no answer from https://sts.eu-west-1.amazonaws.com/, which is asked for" in said
        assert "check SSL_CERT_FILE or ca_file" in said


def test_a_proxy_that_refuses_is_named_without_its_password(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_keys(monkeypatch, account.reader)
    with aws.gateway(account) as proxy:
        proxy.refuse = lambda what, headers: Refusal(407) if what == "tunnel" else None
        address = proxy.address.replace("://", "://me:canary@")
        monkeypatch.setenv("https_proxy", address)
        said = refusal_of("s3://bucket/x.npy")
    assert "407" in said
    assert "check the host, the network and the proxy in https_proxy" in said
    assert "canary" not in said


def test_hosts_without_proxy_and_the_machine_itself_are_asked_directly(
    gate: Gateway, machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert_reads()
    # what a proxy says of itself must not become our identity
    monkeypatch.setenv("http_proxy", gate.address)
    monkeypatch.setenv("no_proxy", "")
    assert_reads()
    assert {(seen.what, seen.proxied) for seen in gate.seen} == {
        ("imds", False),
        ("s3", False),
        ("s3", True),
    }


# --- identities that are exchanged for keys ---


def test_a_web_identity_becomes_keys(
    gate: Gateway, web_identity: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "rank 0/1")
    bodies = []
    gate.on_sts = bodies.append
    assert_reads()
    assert all("RoleSessionName=rank%200%2F1&" in body for body in bodies)
    assert gate.statuses("s3") <= {200, 206}
    assert all(key.startswith("ASIA") for key in gate.keys_used())
    assert gate.count("sts") == len(bodies) == PLACES


def test_a_profile_may_name_a_web_identity(
    gate: Gateway, web_identity: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{gate.address}/")  # of all services
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        f"[profile job]\nrole_arn = {aws.ROLE}\nweb_identity_token_file = {tmp_path / 'token'}\n"
    )
    assert_reads(profile="job")
    assert gate.count("sts") == PLACES


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (Refusal(400, "ExpiredTokenException"), "(400 ExpiredTokenException): check AWS_ROLE_ARN"),
        (Refusal(403, "AccessDenied"), "(403 AccessDenied): check AWS_ROLE_ARN and the token in"),
        (Refusal(503), "(503): try again later"),
    ],
)
def test_a_web_identity_that_is_refused_is_one_line(
    gate: Gateway, web_identity: None, refusal: Refusal, says: str
) -> None:
    gate.refuse = lambda what, headers: refusal if what == "sts" else None
    assert says in refusal_of("s3://bucket/x.npy")
    assert gate.count("sts") == (3 if refusal.status == 503 else 1)


def test_what_lacks_of_a_web_identity_is_one_line(
    web_identity: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    assert "no answer from http://127.0.0.1:1/, which is asked for credentials" in refusal_of(
        "s3://bucket/x.npy"
    )
    (tmp_path / "token").unlink()
    assert f"cannot read the web identity token in {tmp_path / 'token'}: check" in refusal_of(
        "s3://bucket/x.npy"
    )


def test_one_lost_answer_is_no_failure(gate: Gateway, web_identity: None) -> None:
    gate.refuse = lambda what, headers: (
        Refusal(503) if what == "sts" and gate.count("sts") == 0 else None
    )
    assert inspect("s3://bucket/x.npy").returncode == 0
    assert [seen.status for seen in gate.seen if seen.what == "sts"][:2] == [503, 200]


def test_a_machine_has_keys_by_the_second_version_of_its_service(
    gate: Gateway, machine: None
) -> None:
    assert_reads()
    asked = [(seen.method, seen.path) for seen in gate.seen if seen.what == "imds"][:3]
    role = "/latest/meta-data/iam/security-credentials/"
    assert asked == [("PUT", "/latest/api/token"), ("GET", role), ("GET", f"{role}train")]
    assert all(key.startswith("ASIA") for key in gate.keys_used())


# --- secrets ---

PROGRAM = """
import json, sys, traceback
import millhead

given = json.loads(sys.stdin.readline())
loader = millhead.Loader(
    given["data"], 2, output="numpy", cache=given["cache"],
    storage_options=given["storage"],
)
with loader:
    watched = millhead.watch(loader, run=given["run"])
    for _ in range(2):
        for batch in watched:
            pass
    print(loader, loader.stats(), loader.state_dict())
for wrong in given["wrong"]:
    try:
        millhead.open(wrong, storage_options=given["storage"])
    except (OSError, ValueError):
        traceback.print_exc()
print("ready", flush=True)
sys.stdin.read()
"""


def command_lines() -> Iterator[bytes]:
    """Of every process there is."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes()
        except OSError:
            pass  # it has ended


def said_by(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done
    return done.stdout + done.stderr


@pytest.mark.parametrize("identity", ["web_identity", "machine", "options"])
def test_secrets_stay_where_they_were_given(
    gate: Gateway, identity: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    storage, secrets = {}, {gate.imds_secret}
    if identity == "options":
        keys = gate.session_keys()
        storage = {"key": keys.key, "secret": keys.secret, "token": keys.token}
    else:
        request.getfixturevalue(identity)
    if identity == "web_identity":
        secrets.add((tmp_path / "token").read_text().strip())
    places = {name: str(tmp_path / name) for name in ("cache", "run")}
    given = {"data": "s3://bucket/x.npy", "wrong": ["s3://nobucket/x.npy"], **places}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "MILLHEAD_VERBOSE": "1"},
    ) as program:
        assert program.stdin and program.stdout
        program.stdin.write(json.dumps({**given, "storage": storage}).encode() + b"\n")
        program.stdin.flush()
        lines = []
        while not lines or lines[-1] not in (b"ready\n", b""):
            lines.append(program.stdout.readline())
        shown = [b"".join(lines), *command_lines()]
        program.stdin.close()
    assert lines[-1] == b"ready\n", b"".join(lines).decode()
    assert b"no such bucket" in shown[0]
    shown.append(said_by(COMMAND, "doctor", places["run"]))
    shown.append(said_by(COMMAND, "report", places["run"], "-o", str(tmp_path / "report.html")))
    shown.append(said_by(COMMAND, "cache", "ls", places["cache"]))
    files = [file for file in tmp_path.rglob("*") if file.name != "token"]
    assert sum(file.is_file() for file in files) >= 4  # of cache, run and report
    shown += [str(file).encode() for file in files]
    shown += [file.read_bytes() for file in files if file.is_file()]
    secrets |= {part for keys in gate.given for part in (keys.secret, keys.token)}
    assert len(secrets) >= 3
    assert [secret for secret in secrets for text in shown if secret.encode() in text] == []


def test_a_service_that_repeats_what_it_was_sent_gives_nothing_away(
    gate: Gateway, web_identity: None, tmp_path: Path
) -> None:
    token = (tmp_path / "token").read_text().strip()
    refusal = Refusal(400, f"Invalid {token}", more=f"<Message>token {token}</Message>")
    gate.refuse = lambda what, headers: refusal
    said = refusal_of("s3://bucket/x.npy")
    assert token not in said
    assert token[-20:] not in said


# --- keys that end ---


@pytest.mark.parametrize("identity", ["web_identity", "machine"])
def test_keys_are_fresh_before_they_end(
    gate: Gateway, identity: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(identity)
    gate.life_s = 8
    with loader() as opened:
        first = gate.lives[-1]
        while time.time() < first.end - 1:
            for batch in opened:
                assert batch["x"].shape == (2, SIZE)
                time.sleep(0.02)
    assert gate.statuses("s3") <= {200, 206}  # none was refused
    (fresh,) = gate.lives[gate.lives.index(first) + 1 :]
    assert first.end - 3 <= fresh.began < first.end  # the last quarter
    assert fresh.key in gate.keys_used()


def test_keys_that_ended_while_nobody_read_are_renewed_first(
    gate: Gateway, web_identity: None
) -> None:
    gate.life_s = 1
    data = millhead.open("s3://bucket/x.npy", output="numpy")
    for at in (0, 1):
        np.testing.assert_array_equal(data[at]["x"], X[at])
        time.sleep(1.2)
    np.testing.assert_array_equal(data[2]["x"], X[2])
    assert gate.statuses("s3") <= {200, 206}


def test_keys_that_end_early_are_renewed_once(gate: Gateway, web_identity: None) -> None:
    with loader() as opened:
        np.testing.assert_array_equal(epoch(opened), X)
        before = gate.count("sts")
        gate.end_all()
        for _ in range(3):  # the next one has been read already
            np.testing.assert_array_equal(epoch(opened), X)
    assert 400 in gate.statuses("s3")
    assert gate.count("sts") == before + 1


def test_a_service_that_fails_is_asked_seldom_and_again_when_it_is_back(
    gate: Gateway, web_identity: None
) -> None:
    gate.life_s = 4
    with loader(timeout=20) as opened:
        np.testing.assert_array_equal(epoch(opened), X)
        asked = gate.count("sts")
        gate.refuse = lambda what, headers: Refusal(503) if what == "sts" else None
        until = time.monotonic() + 20
        says = "s3://bucket/x.npy: no fresh credentials: AWS's token service refuses .*503"
        with pytest.raises(OSError, match=says):
            while time.monotonic() < until:
                epoch(opened)
                time.sleep(0.01)
        assert time.time() >= gate.lives[-1].end  # until then the old ones serve
        assert gate.count("sts") - asked <= 9  # a few times three calls
        gate.refuse = lambda what, headers: None
        time.sleep(1.1)
        np.testing.assert_array_equal(epoch(opened), X)


def test_keys_that_are_old_from_the_start_are_no_endless_loop(
    gate: Gateway, web_identity: None
) -> None:
    gate.life_s = -10
    assert "the session token has expired" in refusal_of("s3://bucket/x.npy")
    assert gate.count("sts") == 2
    gate.lenient = True  # this machine's clock was wrong
    assert_reads()
    assert gate.count("sts") <= 2 + PLACES


def test_keys_that_end_and_cannot_be_renewed_are_one_error(
    gate: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_keys(monkeypatch, gate.session_keys())
    with loader() as opened:
        np.testing.assert_array_equal(epoch(opened), X)
        gate.end_all()
        asked = gate.count("s3")
        with pytest.raises(OSError, match=r"has expired: get a new one and set token=") as raised:
            for _ in range(3):  # the next one has been read already
                epoch(opened)
        assert "\n" not in str(raised.value)
        assert gate.count("s3") - asked <= 2 * SAMPLES
