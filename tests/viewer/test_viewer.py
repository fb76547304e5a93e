"""`latchwork view`: a real server, and its page in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from test_answers import make_viewer

from latchwork.tasks import get
from latchwork.viewer.server import MOST_BYTES, ViewerServer, page_files


def start(folder, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "latchwork", "view", str(folder), "--no-browser", "--threads", "1", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """Of a server that shows a model with weights as they start; in the end Ctrl-C stops it without a word."""
    run = make_viewer(tmp_path_factory.mktemp("view") / "run <b>", get("latching", size=4)).run
    process = start(run.path)
    try:
        yield int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", process.stdout.readline())[1])
    finally:
        process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0 or os.name != "posix"
    assert out == ""
    assert error == "Ctrl-C ends it\n"


def call(port, method, path, body=None, **headers) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def ask(port, question, **headers) -> tuple[int, dict]:
    body = question if isinstance(question, bytes) else json.dumps(question)
    headers = {"Content_Type": "application/json", **headers}
    status, kind, content = call(port, "POST", "/api/trace", body, **headers)
    assert kind == "application/json"
    return status, json.loads(content)


def test_the_model_its_examples_and_traces_are_answered(port):
    status, kind, content = call(port, "GET", "/api/model")
    facts = json.loads(content)
    assert (status, kind) == (200, "application/json")
    assert facts["task"] == "latching(4)"
    assert facts["run"] == "run <b>"
    assert facts["tokens"][:5] == ["m0", "m1", "m2", "m3", "-0"]
    example = json.loads(call(port, "GET", "/api/example?sample=3&length=10")[2])["tokens"]
    assert len(example) == 10
    status, answer = ask(port, {"tokens": example})
    assert status == 200
    assert [facts["classes"][c] for c in answer["targets"]] == [example[0]] * 10
    assert [len(row) for row in answer["layers"][1]["flags"]] == [10] * 6
    assert ask(port, {"tokens": example, "skip": 9})[1]["tokens"] == answer["tokens"][9:]


def test_the_page_needs_nothing_from_elsewhere(port):
    for path, (kind, content) in page_files().items():
        status, served, body = call(port, "GET", path)
        assert (status, served, body) == (200, kind, content)
        assert not re.search(rb"(src|href)\s*=\s*\"(https?:)?//|url\(|@import|innerHTML|eval\(", body)
    assert {"/", "/main.js", "/style.css"} <= page_files().keys()
    assert call(port, "HEAD", "/")[::2] == (200, b"")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 60_000, 400, "not JSON"),
        (b'{"tokens": [NaN]}', 400, "token 1 must be a name or a number"),
        (b"[1]", 400, 'either "tokens" or "text"'),
        (b'{"tokens": "m1 <script>"}', 400, "token 2, '<script>', is unknown"),
        (b'{"tokens": "' + b"m1 " * 5000 + b'"}', 400, "at most 2,000 tokens"),
        (b'"' + b"x" * MOST_BYTES + b'"', 413, "at most 65,536 bytes"),
        (b"x" * 4_000_000, 413, "at most 65,536 bytes"),
    ],
)
def test_hostile_questions_get_a_clear_answer(port, body, status, message):
    got, content = ask(port, body)
    assert got == status
    assert message in content["error"]


@pytest.mark.parametrize(
    "path", ["/../server.py", "/%2e%2e/server.py", "/page/main.js", "//etc/passwd", "/index.html/", "/x"]
)
def test_there_is_nothing_but_the_page(port, path):
    assert call(port, "GET", path)[0] == 404
    assert call(port, "POST", path, "{}", Content_Type="application/json")[0] == 404


def test_other_hosts_pages_and_methods_are_refused(port):
    question = {"tokens": "m1"}
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", "", f"127.0.0.1:{port}.evil.example"):
        assert ask(port, question, Host=host)[0] == 403
        assert call(port, "GET", "/", Host=host)[0] == 403
    assert ask(port, question, Host=f"localhost:{port}")[0] == 200
    assert ask(port, question, Origin="http://evil.example")[0] == 403
    assert ask(port, question, Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert ask(port, question, Content_Type="text/plain")[0] == 415
    assert call(port, "PUT", "/api/trace", "{}")[0] == 501
    for query in ("length=0", "length=x", "sample=-1", "sample=" + "9" * 11):
        assert call(port, "GET", f"/api/example?{query}")[0] == 400


def test_only_this_machine_can_connect(tmp_path):
    with ViewerServer(make_viewer(tmp_path / "run", get("latching", size=4))) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_question_without_a_length_is_refused(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST /api/trace HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        assert b" 411 " in connection.recv(1000)


def test_a_port_that_is_taken_or_none_is_one_line(port, tmp_path):
    viewer = make_viewer(tmp_path / "run", get("latching", size=4))
    with pytest.raises(OSError, match=f"cannot listen on port {port}: "):
        ViewerServer(viewer, port)
    with pytest.raises(ValueError, match="port must be in 0 … 65535, got 70000"):
        ViewerServer(viewer, 70_000)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    if chromium is None or os.name != "posix":
        pytest.skip("no Chromium on this machine")
    from browser import Browser  # has pipes of POSIX

    browser = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
    assert browser.problems == [], "the console of the page is not empty"


def columns(browser) -> list[list[str]]:
    """Number, token, prediction, probability and target of every column."""
    script = "[...document.querySelectorAll('.col')].map((c) => [...c.children].map((s) => s.textContent))"
    return browser.run(script)


def shows(browser, tokens: str) -> None:
    """Wait until these are the tokens of the columns."""
    browser.wait(f"[...document.querySelectorAll('.col .tok')].map((s) => s.textContent).join(' ') === '{tokens}'")


def test_the_page_shows_tokens_of_its_address_and_what_is_predicted(port, browser):
    browser.open(f"http://127.0.0.1:{port}/?tokens=m1+-3")
    shows(browser, "m1 -3")
    answer = ask(port, {"tokens": "m1 -3"})[1]
    names = json.loads(call(port, "GET", "/api/model")[2])["classes"]
    for column, top, number in zip(columns(browser), answer["top"], (1, 2), strict=True):
        assert column[0] == str(number)
        assert column[2].rstrip("✓✗") == names[top[0][0]]
        assert column[4] == "m1"
    right = browser.run("[...document.querySelectorAll('.col')].map((c) => c.classList.contains('right'))")
    assert right == [top[0][0] == 1 for top in answer["top"]]
    assert "run <b>" in browser.run("document.getElementById('facts').textContent")
    assert browser.run("document.querySelectorAll('#facts b').length") == 0
    unlabelled = "[...document.querySelectorAll('button, select, input, textarea')].filter((e) => !e.labels?.length && "
    assert browser.run(unlabelled + "!e.textContent && !e.getAttribute('aria-label')).length") == 0


def test_clicks_append_remove_and_clear_tokens(port, browser):
    browser.open(f"http://127.0.0.1:{port}/?tokens=m1")
    shows(browser, "m1")
    for name in ("-0", "m2"):
        browser.click(f"[...document.querySelectorAll('#vocabulary button')].find((b) => b.textContent === '{name}')")
    shows(browser, "m1 -0 m2")
    assert browser.run("document.getElementById('tokens').value") == "m1 -0 m2"
    assert browser.run("location.search") == "?tokens=m1+-0+m2"
    browser.click("document.getElementById('back')")
    shows(browser, "m1 -0")
    browser.click("document.getElementById('clear')")
    browser.wait("!document.getElementById('empty').hidden")
    browser.click("document.getElementById('example')")
    browser.wait("document.querySelectorAll('.col').length > 10")
    browser.run("document.getElementById('table').open = true")
    browser.wait("document.querySelectorAll('#table tr').length === 25")


def test_typing_goes_on_from_what_is_there_and_unknown_tokens_are_named(port, browser):
    browser.open(f"http://127.0.0.1:{port}/?tokens=m1+-3")
    shows(browser, "m1 -3")
    browser.run("document.getElementById('tokens').focus()")
    for piece, shown in ((" m", "m1 -3"), ("2", "m1 -3 m2"), (" <b>x</b>", "m1 -3 m2"), (" m0", "m1 -3 m2")):
        browser.type(piece)
        shows(browser, shown)
    browser.wait("document.getElementById('message').textContent.includes(\"token 4, '<b>x</b>', is unknown\")")
    browser.run("document.getElementById('tokens').value = 'm1 -31'")
    browser.type(" ")
    browser.wait("document.querySelector('#near button')")
    assert "token 2" in browser.run("document.getElementById('message').textContent")
    browser.click("document.querySelector('#near button')")
    browser.wait("document.getElementById('message').textContent === ''")
    assert len(columns(browser)) == 2


def test_keys_and_clicks_choose_a_step_and_a_unit(port, browser):
    browser.open(f"http://127.0.0.1:{port}/?tokens=m1+-3+m0+5")
    shows(browser, "m1 -3 m0 -1")
    card = "document.getElementById('unit-card').textContent"
    browser.click("document.getElementById('layer-0')", x=0.08, y=3.5 / 6)  # the fourth of six units
    browser.wait(f"{card}.includes('Layer 1, unit 3, step 1')")
    for key, shown in (
        *(("ArrowRight", "unit 3, step 2"), ("ArrowUp", "unit 2, step 2"), ("End", "unit 2, step 4")),
        *(("ArrowDown", "unit 3, step 4"), ("Home", "unit 3, step 1")),
    ):
        browser.run("document.getElementById('stage').focus()")
        browser.press(key)
        browser.wait(f"{card}.includes('Layer 1, {shown}')")
    flag = ask(port, {"tokens": "m1 -3 m0 5"})[1]["layers"][0]["flags"][3][0]
    assert {"k": "Kept", "s": "Set", "r": "Lowered"}[flag] in browser.run(
        "document.querySelector('.verdict').textContent"
    )
    browser.wait("!document.getElementById('tip').hidden")
    assert "r = " in browser.run("document.getElementById('tip').textContent")
    painted = (
        "((c) => new Set(c.getContext('2d').getImageData(70, 2, 100, 60).data).size)(document.getElementById('{}'))"
    )
    assert browser.run(painted.format("layer-0")) > 10
    assert browser.run(painted.format("plot-canvas")) > 3


def test_five_hundred_tokens_are_shown_whole(port, browser):
    browser.open(f"http://127.0.0.1:{port}/?tokens=m1")
    shows(browser, "m1")
    browser.run("document.getElementById('length').value = 500")
    browser.click("document.getElementById('example')")
    browser.wait("document.getElementById('step-card').textContent.includes('Step 500')")
    assert len(columns(browser)) < 60, "columns that are not seen are not there"
    browser.click("document.getElementById('fit')")
    browser.wait("!document.querySelectorAll('.col').length")
    assert (
        browser.run("document.getElementById('stage').scrollWidth - document.getElementById('stage').clientWidth") < 90
    )
