#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The engine as a process: JSON lines, and HTTP. Usage: serve_test.py ENGINE MODELS"""
import json
import pathlib
import random
import socket
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

ENGINE, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
FOLDER = MODELS / "llama"
CASES = json.loads((FOLDER / "expected.json").read_text())["cases"]
OPTIONS = ["--pages", "64", "--most-tokens", "256", "--most-sequences", "8"]


class Lines(unittest.TestCase):
    def run_engine(self, lines, *options, folder=FOLDER):
        return subprocess.run([ENGINE, str(folder), *(options or OPTIONS)], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300)

    def test_answers_are_those_of_transformers_and_errors_do_not_stop_it(self):
        lines = [json.dumps({"id": f"case{i}", "prompt": c["prompt"], "max_tokens": len(c["tokens"])}) for i, c in enumerate(CASES)]
        lines[1:1] = ["not json", json.dumps({"prompt": [1], "max_tokens": 0}), ""]
        done = self.run_engine(lines)
        self.assertEqual(done.returncode, 0, done.stderr)
        tokens, errors, reasons = {}, {}, {}
        for line in done.stdout.splitlines():
            answer = json.loads(line)
            if "error" in answer:
                errors[answer["id"]] = answer["error"]
            else:
                tokens.setdefault(answer["id"], []).extend(answer["tokens"])
                reasons[answer["id"]] = answer.get("finish_reason")
        self.assertEqual(tokens, {f"case{i}": c["tokens"] for i, c in enumerate(CASES)})
        self.assertEqual(set(reasons.values()), {"length"})
        self.assertEqual(errors, {"2": "the request is no JSON object", "3": "max_tokens is below 1"})
        self.assertRegex(done.stderr, r"^24 tokens in [\d.e-]+ s: [\d.e+]+ tokens/s$")

    def test_progress_is_said_while_tokens_come(self):
        done = self.run_engine([json.dumps({"prompt": CASES[2]["prompt"], "max_tokens": 200, "ignore_eos": True})], *OPTIONS, "--progress=0.01")
        self.assertRegex(done.stderr, r"(?m)^1 requests, \d+ tokens, [\d.e+]+ tokens/s$")

    def test_a_full_disk_is_one_line_where_answers_are_lost_and_nothing_where_logs_are(self):
        line = json.dumps({"id": "case", "prompt": CASES[0]["prompt"], "max_tokens": 8}) + "\n"
        with open("/dev/full", "w") as full:
            lost = subprocess.run([ENGINE, str(FOLDER), *OPTIONS], input=line * 3, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
            done = subprocess.run([ENGINE, str(FOLDER), *OPTIONS, "--progress=0.001"], input=line, stdout=subprocess.PIPE, stderr=full, text=True,
                                  timeout=300)
        self.assertEqual(lost.returncode, 1)
        self.assertTrue(lost.stderr.endswith("engine: stdout cannot be written\n"), lost.stderr)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(sum((json.loads(answer)["tokens"] for answer in done.stdout.splitlines()), []), CASES[0]["tokens"])

    def test_what_cannot_be_served_is_one_line_and_a_failure(self):
        for folder, options in ((MODELS, ()), (FOLDER, ("--page-tokens", "20")), (FOLDER, ("--most-sequences", "0"))):
            done = self.run_engine([], *options, folder=folder)
            self.assertEqual(done.returncode, 1)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
            self.assertTrue(done.stderr.startswith("engine: "))


@unittest.skipUnless("--serve" in subprocess.run([ENGINE, "--help"], capture_output=True, text=True).stdout, "the engine was built without HTTP")
class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cls.port = free.getsockname()[1]
        cls.server = subprocess.Popen([ENGINE, str(FOLDER), *OPTIONS, "--serve", str(cls.port)], stderr=subprocess.PIPE, text=True)
        for _ in range(600):
            try:
                if cls.get("/health") == {}:
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server does not answer")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.communicate()

    @classmethod
    def get(cls, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{cls.port}{path}", timeout=60) as answer:
            return json.loads(answer.read())

    def post(self, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def wanted(self, case, **more):
        return {"prompt": case["prompt"], "max_tokens": len(case["tokens"]), **more}

    def test_a_completion_has_its_tokens_and_usage(self):
        status, body = self.post(self.wanted(CASES[1]))
        answer = json.loads(body)
        self.assertEqual((status, answer["choices"][0]["tokens"], answer["choices"][0]["finish_reason"]), (200, CASES[1]["tokens"], "length"))
        self.assertEqual(answer["usage"], {"prompt_tokens": 17, "completion_tokens": 8, "total_tokens": 25})

    def test_a_stream_ends_with_done(self):
        status, body = self.post(self.wanted(CASES[0], stream=True))
        events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual((status, events[-1]), (200, "[DONE]"))
        self.assertEqual(sum((json.loads(event)["choices"][0]["tokens"] for event in events[:-1]), []), CASES[0]["tokens"])

    def test_bad_bodies_are_refused_and_the_server_lives(self):
        good = json.dumps(self.wanted(CASES[0])).encode()
        self.assertEqual(json.loads(self.post(b"{}")[1])["error"]["message"], "prompt is missing")
        dice = random.Random(36)
        for _ in range(200):
            bad = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                bad[dice.randrange(len(bad))] = dice.randrange(256)
            status, body = self.post(bytes(bad))
            self.assertIn(status, (200, 400))
            json.loads(body)
        self.assertEqual(self.post(self.wanted(CASES[0]))[0], 200)

    def test_a_client_that_goes_away_costs_nothing(self):
        for _ in range(12):  # more than run at once
            with socket.create_connection(("127.0.0.1", self.port)) as client:
                body = json.dumps({"prompt": [5] * 40, "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                client.recv(64)
        status, body = self.post(self.wanted(CASES[2]))
        self.assertEqual((status, json.loads(body)["choices"][0]["tokens"]), (200, CASES[2]["tokens"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
