#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text in front of the engine, which speaks token ids: OpenAI's completions with text in and out.

  engine MODEL --serve 8001 &
  text.py MODEL --engine http://127.0.0.1:8001 --serve 8000
  text.py MODEL --engine http://127.0.0.1:8001 "The first bread was"

MODEL's tokenizer.json is read by Hugging Face's tokenizers, else its tokenizer.model by sentencepiece. A prompt may be text or token ids. `stop` is a
text, or up to four: the answer ends in front of the first that comes. All other fields go to the engine as they are."""
import argparse
import http.client
import http.server
import json
import pathlib
import sys
import urllib.parse

MOST_BYTES = 64 << 20  # of a body, as the engine has it
UNFINISHED = "\ufffd"  # what bytes of a character that is not whole are decoded to


class Wrong(Exception):
    """A request that cannot be served, in one line."""


class Tokenizer:
    """encode() and decode() of a model's folder. Raises Wrong where the folder has no tokenizer, or its package is not installed."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        try:
            if (folder / "tokenizer.json").exists():
                import tokenizers
                model = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))  # whose template says what a prompt begins with
                self.encode = lambda text: model.encode(text).ids
                self.decode = lambda ids: model.decode(ids)
            elif (folder / "tokenizer.model").exists():
                import sentencepiece
                model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
                begin = [model.bos_id()] if model.bos_id() >= 0 else []
                self.encode = lambda text: begin + model.encode(text)
                self.decode = lambda ids: model.decode(ids)
            else:
                raise Wrong(f"{folder} has neither tokenizer.json nor tokenizer.model")
        except ImportError as missing:
            raise Wrong(f"the Python package {missing.name} is not installed") from None
        except (RuntimeError, OSError, ValueError) as broken:
            raise Wrong(f"the tokenizer in {folder} cannot be read: {broken}") from None
        except Exception as broken:  # tokenizers raises plain exceptions
            if isinstance(broken, Wrong):
                raise
            raise Wrong(f"the tokenizer in {folder} cannot be read: {broken}") from None


class Growing:
    """The text of tokens that come one by one. Of a character whose bytes are in several tokens nothing shows before the last, and a text that may
    be the beginning of a stop is held back."""

    WINDOW = 8  # tokens in front, behind which a word keeps the space that it begins with

    def __init__(self, decode, stops, prompt):
        self.decode, self.stops = decode, stops
        self.ids = prompt[-self.WINDOW:]
        self.shown_ids, self.held, self.stopped = len(self.ids), "", False

    def add(self, ids, last=False):
        """Returns the text that these tokens bring. After `stopped` there is no more."""
        self.ids += ids
        front = self.ids[max(0, self.shown_ids - self.WINDOW):self.shown_ids]
        before, now = self.decode(front), self.decode(front + self.ids[self.shown_ids:])
        if now.endswith(UNFINISHED) and not last:
            return ""
        self.shown_ids = len(self.ids)
        text = self.held + now[len(before):]
        self.held = ""
        ends = [at for at in (text.find(stop) for stop in self.stops) if at >= 0]
        if ends:
            self.stopped = True
            return text[:min(ends)]
        if last:
            return text
        keep = max((n for stop in self.stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        if keep:
            text, self.held = text[:-keep], text[-keep:]
        return text


def stops_of(body):
    stops = body.pop("stop", None) or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(s, str) and s for s in stops):
        raise Wrong("stop is neither a text nor up to four texts")
    return stops


class Engine:
    """The engine's server."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise Wrong(f"{url} is no address such as http://127.0.0.1:8001")
        self.address = parts.hostname, parts.port or 80

    def events(self, body):
        """Gives the answer's choices as they come. Raises Wrong with the engine's reason, or where it is not there. Whoever stops early closes the
        generator, and the connection with it: the engine then forgets the request."""
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body | {"stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise Wrong(json.loads(answer.read())["error"]["message"])
            for line in answer:
                data = line.decode().strip().removeprefix("data: ")
                if data == "[DONE]":
                    return
                if data:
                    yield json.loads(data)["choices"][0]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as broken:
            raise Wrong(f"no answer of the engine: {broken}") from None
        finally:
            connection.close()


class Completions:
    """What the server and the command line share: a body in, pieces of text out."""

    def __init__(self, tokenizer, engine):
        self.tokenizer, self.engine = tokenizer, engine

    def prepared(self, body):
        """Returns the body that the engine takes, and the stops."""
        if not isinstance(body, dict):
            raise Wrong("the request is no JSON object")
        body = dict(body)
        stops = stops_of(body)
        if isinstance(body.get("prompt"), str):
            body["prompt"] = self.tokenizer.encode(body["prompt"])
        return body, stops

    def pieces(self, body, stops):
        """Gives (text, tokens, log probabilities, finish_reason or None), the last with a reason."""
        growing = Growing(self.tokenizer.decode, stops, body["prompt"] if isinstance(body.get("prompt"), list) else [])
        events = self.engine.events(body)
        try:
            for event in events:
                reason = event["finish_reason"]
                text = growing.add(event["tokens"], last=reason is not None)
                logprobs = event["logprobs"]["token_logprobs"]
                if growing.stopped:
                    yield text, event["tokens"], logprobs, "stop"
                    return
                yield text, event["tokens"], logprobs, reason
        finally:
            events.close()


def completion(model, text, tokens, logprobs, reason):
    choice = {"index": 0, "text": text, "tokens": tokens, "logprobs": {"token_logprobs": logprobs}, "finish_reason": reason}
    return {"object": "text_completion", "model": model, "choices": [choice]}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that goes away is nobody's error."""


def handler_of(completions, model):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, body):
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def refuse(self, status, message):
            self.close_connection = True
            self.answer(status, {"error": {"message": message, "type": "invalid_request_error"}})

        def do_GET(self):
            if self.path == "/health":
                return self.answer(200, {})
            if self.path == "/v1/models":
                return self.answer(200, {"object": "list", "data": [{"id": model, "object": "model"}]})
            return self.refuse(404, "there is /v1/completions, /v1/models and /health")

        def body(self):
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > MOST_BYTES:
                raise Wrong(f"a body needs a Content-Length of at most {MOST_BYTES}")
            try:
                return json.loads(self.rfile.read(int(length)))
            except ValueError:
                raise Wrong("the request is no JSON object") from None

        def do_POST(self):
            if self.path != "/v1/completions":
                return self.refuse(404, "there is /v1/completions, /v1/models and /health")
            began = False
            try:
                body, stops = completions.prepared(self.body())
                pieces = completions.pieces(body, stops)
                try:
                    first = next(pieces)  # what is wrong shows before the answer begins
                    began = True
                    self.stream(first, pieces) if body.get("stream") is True else self.whole(len(body["prompt"]), first, pieces)
                finally:
                    pieces.close()
            except Wrong as wrong:
                if began:
                    self.close_connection = True  # half an answer is out: its end is missing, and that is all there is to say
                else:
                    self.refuse(400, str(wrong))
            except StopIteration:
                self.refuse(500, "the engine gave no tokens")
            except OSError:
                self.close_connection = True  # the client went away

        def whole(self, asked, first, pieces):
            text, tokens, logprobs, reason = first[0], list(first[1]), list(first[2]), first[3]
            for more in pieces:
                text, tokens, logprobs, reason = text + more[0], tokens + more[1], logprobs + more[2], more[3]
            self.answer(200, completion(model, text, tokens, logprobs, reason) | {
                "usage": {"prompt_tokens": asked, "completion_tokens": len(tokens), "total_tokens": asked + len(tokens)}})

        def stream(self, first, pieces):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.chunk("data: " + json.dumps(completion(model, *first)) + "\n\n")
            for piece in pieces:
                self.chunk("data: " + json.dumps(completion(model, *piece)) + "\n\n")
            self.chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

        def chunk(self, text):
            data = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    return Handler


def main():
    parser = argparse.ArgumentParser(prog="text.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder with the model's tokenizer")
    parser.add_argument("prompt", nargs="?", help="a text to continue on stdout")
    parser.add_argument("--engine", default="http://127.0.0.1:8001", help="where the engine serves")
    parser.add_argument("--serve", type=int, metavar="PORT")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_intermixed_args()
    try:
        completions = Completions(Tokenizer(options.model), Engine(options.engine))
        if options.serve is not None:
            return Server((options.host, options.serve), handler_of(completions, options.model)).serve_forever()
        if options.prompt is None:
            raise Wrong("give a prompt, or --serve")
        for text, *_ in completions.pieces(*completions.prepared({"prompt": options.prompt, "max_tokens": options.max_tokens})):
            print(text, end="", flush=True)
        print()
    except (Wrong, OSError, OverflowError) as wrong:
        raise SystemExit(f"text.py: {wrong}") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
