#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model of transformers on tilewave's attention beside "sdpa". Needs a GPU, PyTorch and transformers.
Usage: test_transformers.py [BUILD_DIRECTORY]"""
import sys
import unittest

import torch
import transformers

import tilewave_torch
import tilewave_transformers

CONFIG = dict(vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
              head_dim=128, max_position_embeddings=1024, initializer_range=0.06, eos_token_id=None, bos_token_id=None, pad_token_id=None)


def model_on(attention, **more):
    torch.manual_seed(36)
    config = transformers.LlamaConfig(**{**CONFIG, **more}, attn_implementation=attention)
    return transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()


class Transformers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours, cls.theirs = model_on("tilewave"), model_on("sdpa")
        cls.prompt = torch.randint(0, 512, (2, 77), generator=torch.Generator().manual_seed(1)).cuda()

    def near(self, ours, theirs):
        off = (ours.float() - theirs.float()).norm() / theirs.float().norm()
        self.assertLess(off.item(), 2e-2)

    @torch.no_grad()
    def test_logits_of_a_prompt(self):
        self.near(self.ours(self.prompt).logits, self.theirs(self.prompt).logits)

    @torch.no_grad()
    def test_tokens_of_prefill_and_decode_where_no_two_are_about_as_likely(self):
        settings = dict(max_new_tokens=24, do_sample=False, output_scores=True, return_dict_in_generate=True)
        ours, theirs = (m.generate(self.prompt, attention_mask=torch.ones_like(self.prompt), **settings) for m in (self.ours, self.theirs))
        compared = 0
        for row in range(2):
            for step in range(24):
                best = theirs.scores[step][row].float().topk(2).values
                if best[0] - best[1] < 0.05:
                    break  # from here on the texts may be different ones
                self.assertEqual(ours.sequences[row, 77 + step], theirs.sequences[row, 77 + step])
                compared += 1
        self.assertGreater(compared, 4)

    @torch.no_grad()
    def test_under_torch_compile(self):
        compiled = torch.compile(self.ours.forward, fullgraph=True)
        self.near(compiled(self.prompt, use_cache=False).logits, self.theirs(self.prompt).logits)

    @torch.no_grad()
    def test_a_graph_is_captured(self):
        tokens = self.prompt.clone()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.ours(tokens, use_cache=False)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.ours(tokens, use_cache=False).logits
        tokens.copy_(tokens.flip(1))
        graph.replay()
        torch.cuda.synchronize()
        self.near(logits, self.theirs(self.prompt.flip(1)).logits)

    @torch.no_grad()
    def test_what_is_not_served_is_named(self):
        padded = torch.ones_like(self.prompt)
        padded[0, :5] = 0
        with self.assertRaisesRegex(ValueError, "padding is not served"):
            self.ours(self.prompt, attention_mask=padded)
        with self.assertRaises(Exception):
            model_on("tilewave", head_dim=96)(self.prompt)


if __name__ == "__main__":
    tilewave_torch.load(build_directory=sys.argv.pop() if len(sys.argv) > 1 else None, only=("attention",))
    tilewave_transformers.register()
    unittest.main()
