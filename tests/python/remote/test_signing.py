"""Signatures of requests to S3, compared with botocore's on random requests."""

from __future__ import annotations

import datetime
import random
import string
import subprocess
from pathlib import Path
from urllib.parse import quote

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ["src/base/sha256.c", "src/source/sigv4.c", "tests/python/helpers/sign_requests.c"]
LETTERS = string.ascii_letters + string.digits + "-._~/=+:?&#%@!$'()*,; \t[]é€😀"
REQUESTS = 2000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signing") / "sign_requests"
    includes = [f"-I{ROOT / name}" for name in ("src", "include")]
    sources = [ROOT / name for name in SOURCES]
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", *includes, *sources, "-o", out]
    subprocess.run(command, check=True, timeout=120)
    return out


def a_text(draw: random.Random, most: int, letters: str = LETTERS, least: int = 0) -> str:
    return "".join(draw.choice(letters) for _ in range(draw.randint(least, most)))


def a_request(draw: random.Random) -> dict[str, object]:
    names = [a_text(draw, 12, least=1) for _ in range(draw.randrange(6))]
    names += [names[0]] if names and draw.random() < 0.3 else []  # the same name twice
    return {
        "method": draw.choice(["GET", "HEAD", "PUT"]),
        "host": draw.choice(["bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "h"]),
        "path": "/" + a_text(draw, 60).lstrip("/"),
        "region": draw.choice(["us-east-1", "eu-central-1", "auto"]),
        "when": draw.randrange(10**9, 4 * 10**9),
        "key": a_text(draw, 20, string.ascii_uppercase, 1),
        "secret": a_text(draw, 80, string.ascii_letters + "/+=", 1),
        "token": draw.choice(["", a_text(draw, 300, string.ascii_letters + "/+=")]),
        "query": [(name, a_text(draw, 30)) for name in names],
    }


def ours(program: Path, requests: list[dict[str, object]]) -> list[list[str]]:
    fields: list[str] = []
    for request in requests:
        fields += [str(value) for name, value in request.items() if name != "query"]
        query = request["query"]
        assert isinstance(query, list)
        fields += [str(len(query)), *(part for pair in query for part in pair)]
    text = "".join(field + "\0" for field in fields).encode()
    done = subprocess.run([program], input=text, capture_output=True, timeout=60, check=True)
    lines = done.stdout.decode().split("\n")[:-1]
    return [lines[at : at + 3] for at in range(0, len(lines), 3)]


def theirs(request: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    when = request["when"]
    assert isinstance(when, int)
    now = datetime.datetime.fromtimestamp(when, datetime.UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: now)
    target = quote(str(request["path"]), safe="/~")
    asked = AWSRequest(
        method=str(request["method"]),
        url=f"http://{request['host']}{target}",
        headers={"Host": request["host"]},
    )
    query = request["query"]
    assert isinstance(query, list)
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    if pairs:
        asked.url += "?" + "&".join(f"{name}={value}" for name, value in pairs)
    credentials = Credentials(request["key"], request["secret"], request["token"] or None)
    auth = botocore.auth.S3SigV4Auth(credentials, "s3", request["region"])
    # botocore signs UNSIGNED-PAYLOAD over https; over http the hash of the body, as we do
    auth.add_auth(asked)
    url = str(asked.url)
    return [
        url[url.index("/", len("http://")) :],
        asked.headers["X-Amz-Date"],
        asked.headers["Authorization"],
    ]


def test_random_requests_are_signed_as_botocore_signs_them(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    requests = [a_request(draw) for _ in range(REQUESTS)]
    answers = ours(program, requests)
    assert len(answers) == REQUESTS
    for request, answer in zip(requests, answers, strict=True):
        assert answer == theirs(request, monkeypatch), f"seed {seed}: {request}"
