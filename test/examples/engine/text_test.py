#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text in front of the engine (docs/examples/engine/text.py), on a server that answers with given tokens. Usage: text_test.py ENGINE_FOLDER"""
import http.client
import http.server
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

FOLDER = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(FOLDER))
import text  # noqa: E402

try:
    import tokenizers
except ImportError:
    print("the Python package tokenizers is not installed")
    sys.exit(77)

LONG = "Brot wäre 面包 – \U0001f35e, and more."


def make_tokenizer(folder):
    """A token for each byte, as byte-level models have them for what they do not know, and token 256 in front of a prompt."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)} | {"<begin>": 256}, []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.add_special_tokens(["<begin>"])
    model.post_processor = tokenizers.processors.TemplateProcessing(single="<begin> $A", special_tokens=[("<begin>", 256)])
    model.save(str(pathlib.Path(folder) / "tokenizer.json"))


class FakeEngine(http.server.BaseHTTPRequestHandler):
    """Says what it is told to, two tokens an event, and keeps what it was asked."""
    protocol_version = "HTTP/1.1"
    says, asked, sent = [], [], 0

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        FakeEngine.asked.append(body)
        if not isinstance(body.get("prompt"), list):
            answer = b'{"error": {"message": "prompt is no list of token ids"}}'
            self.send_response(400)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            return self.wfile.write(answer)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        says = FakeEngine.says[:body.get("max_tokens", 10 ** 6)]
        for at in range(0, len(says), 2):
            tokens = says[at:at + 2]
            choice = {"tokens": tokens, "logprobs": {"token_logprobs": [-0.5] * len(tokens)},
                      "finish_reason": "length" if at + 2 >= len(says) else None}
            data = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            except OSError:
                return
            FakeEngine.sent = at + 2
            if len(says) > 1000:
                time.sleep(0.001)
        data = b"data: [DONE]\n\n"
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))


def served(handler):
    server = text.Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Text(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        make_tokenizer(cls.folder.name)
        cls.tokenizer = text.Tokenizer(cls.folder.name)
        cls.engine = served(FakeEngine)
        cls.url = f"http://127.0.0.1:{cls.engine.server_port}"
        cls.front = served(text.handler_of(text.Completions(cls.tokenizer, text.Engine(cls.url)), "tiny"))

    @classmethod
    def tearDownClass(cls):
        cls.engine.shutdown(), cls.front.shutdown(), cls.folder.cleanup()

    def setUp(self):
        FakeEngine.says, FakeEngine.asked, FakeEngine.sent = self.ids(LONG), [], 0

    def ids(self, words):
        return self.tokenizer.encode(words)[1:]

    def post(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.front.server_port, timeout=60)
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", "/v1/completions", body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data

    def choice(self, body):
        status, data = self.post(body)
        self.assertEqual(status, 200, data)
        return json.loads(data)["choices"][0]

    def pieces(self, body):
        status, data = self.post(body | {"stream": True})
        lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual((status, lines[-1]), (200, "[DONE]"))
        return [json.loads(line)["choices"][0] for line in lines[:-1]]

    def test_text_goes_in_as_tokens_and_comes_back_as_text(self):
        choice = self.choice({"prompt": "Bäcker", "seed": 7})
        usage = json.loads(self.post({"prompt": "Bäcker"})[1])["usage"]
        self.assertEqual(usage, {"prompt_tokens": 8, "completion_tokens": len(self.ids(LONG)), "total_tokens": 8 + len(self.ids(LONG))})
        self.assertEqual((choice["text"], choice["finish_reason"], choice["tokens"]), (LONG, "length", self.ids(LONG)))
        self.assertEqual(len(choice["logprobs"]["token_logprobs"]), len(self.ids(LONG)))
        self.assertEqual((FakeEngine.asked[0]["prompt"], FakeEngine.asked[0]["seed"]), ([256] + self.ids("Bäcker"), 7))

    def test_token_ids_go_in_as_they_are(self):
        self.assertEqual(self.choice({"prompt": [1, 2, 3]})["text"], LONG)
        self.assertEqual(FakeEngine.asked[0]["prompt"], [1, 2, 3])

    def test_a_stream_shows_no_half_characters(self):
        pieces = self.pieces({"prompt": "x"})
        self.assertEqual("".join(p["text"] for p in pieces), LONG)
        self.assertFalse([p for p in pieces if text.UNFINISHED in p["text"]])
        self.assertGreater(len([p for p in pieces if p["text"]]), 10)

    def test_a_character_that_is_cut_off_is_shown_as_such_at_the_end(self):
        size = len("Brot w".encode()) + 1
        self.assertEqual(self.choice({"prompt": "x", "max_tokens": size})["text"], "Brot w" + text.UNFINISHED)

    def test_a_stop_ends_the_answer_in_front_of_it_wherever_tokens_end(self):
        for stop in ("面", "包 –", ", and", ["more", "wäre"], "a"):
            first = min(LONG.find(s) for s in ([stop] if isinstance(stop, str) else stop))
            self.assertEqual(self.choice({"prompt": "x", "stop": stop})["text"], LONG[:first])
            pieces = self.pieces({"prompt": "x", "stop": stop})
            self.assertEqual(("".join(p["text"] for p in pieces), pieces[-1]["finish_reason"]), (LONG[:first], "stop"))
            self.assertNotIn("stop", FakeEngine.asked[-1])
        self.assertEqual(self.choice({"prompt": "x", "stop": "more!"})["text"], LONG)

    def test_a_stop_or_a_client_that_goes_away_ends_the_engines_work(self):
        FakeEngine.says = self.ids("stop" + "x" * 20000)
        self.assertEqual(self.choice({"prompt": "x", "stop": "p"})["text"], "sto")
        connection = http.client.HTTPConnection("127.0.0.1", self.front.server_port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "stream": True}))
        connection.getresponse().read(100)
        connection.close()
        time.sleep(1)
        sent = FakeEngine.sent
        time.sleep(0.5)
        self.assertEqual(FakeEngine.sent, sent)
        self.assertLess(sent, 10000)

    def test_a_model_of_sentencepiece_keeps_the_spaces_of_words(self):
        try:
            import sentencepiece
        except ImportError:
            self.skipTest("the Python package sentencepiece is not installed")
        words = ["the first bread was flat", "more bread was made of the flour", "flat bread and more flour", "the flour was more"]
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words * 20), model_prefix=f"{folder}/tokenizer", vocab_size=300,
                                                     model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=2)
            model = text.Tokenizer(folder)
            prompt, more = model.encode("the first bread"), model.encode("was flat 面包 and more")[1:]
            growing = text.Growing(model.decode, [], prompt)
            shown = [growing.add([token], last=at + 1 == len(more)) for at, token in enumerate(more)]
        self.assertEqual("".join(shown), " was flat 面包 and more")
        self.assertEqual(prompt[0], 1)

    def test_wrong_bodies_are_refused_in_a_sentence_and_the_server_lives(self):
        for body, message in ((b"no json", "the request is no JSON object"), (b"[1]", "the request is no JSON object"),
                              ({"prompt": 3}, "prompt is no list of token ids"), ({}, "prompt is no list of token ids"),
                              ({"prompt": "x", "stop": [1]}, "stop is neither a text nor up to four texts"),
                              ({"prompt": "x", "stop": ["a"] * 5}, "stop is neither a text nor up to four texts")):
            status, data = self.post(body)
            self.assertEqual((status, json.loads(data)["error"]["message"]), (400, message))
        good, dice = json.dumps({"prompt": "abc", "max_tokens": 4, "stop": "q"}).encode(), random.Random(36)
        for _ in range(200):
            bad = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                bad[dice.randrange(len(bad))] = dice.randrange(256)
            self.assertIn(self.post(bytes(bad))[0], (200, 400))
        self.assertEqual(self.choice({"prompt": "x"})["text"], LONG)

    def test_an_engine_that_is_not_there_is_one_sentence(self):
        with self.assertRaisesRegex(text.Wrong, "no answer of the engine"):
            next(text.Engine("http://127.0.0.1:1").events({"prompt": [1]}))

    def test_the_command_line_continues_a_text_and_fails_in_one_line(self):
        command = [sys.executable, str(FOLDER / "text.py")]
        done = subprocess.run([*command, self.folder.name, "--engine", self.url, "--max-tokens=4", "Guten"], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "Brot\n"), done.stderr)
        with tempfile.TemporaryDirectory() as empty:
            for folder, options, reason in ((empty, ["x"], "has neither tokenizer.json nor tokenizer.model"), (self.folder.name, [], "give a prompt"),
                                            (self.folder.name, ["--engine=ftp://x", "x"], "is no address")):
                done = subprocess.run([*command, folder, *options], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
                self.assertIn(reason, done.stderr)
            (pathlib.Path(empty) / "tokenizer.json").write_text("{}")
            with self.assertRaisesRegex(text.Wrong, "cannot be read"):
                text.Tokenizer(empty)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
