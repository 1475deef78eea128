#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model of transformers on tilewave's attention beside "sdpa". Needs a GPU, PyTorch and transformers.
Usage: test_transformers.py [BUILD_DIRECTORY | LIBRARY.so]"""
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

    def cache(self):
        return tilewave_transformers.paged_cache(self.ours.config, 2, 77 + 60, "cuda")

    @torch.no_grad()
    def generate(self, model, **more):
        settings = dict(max_new_tokens=24, do_sample=False, output_scores=True, return_dict_in_generate=True)
        return model.generate(self.prompt, attention_mask=torch.ones_like(self.prompt), **settings, **more)

    def same_tokens_where_no_two_are_about_as_likely(self, ours, theirs):
        compared = 0
        for row in range(2):
            for step in range(24):
                best = theirs.scores[step][row].float().topk(2).values
                if best[0] - best[1] < 0.05:
                    break  # from here on the texts may be different ones
                self.assertEqual(ours.sequences[row, 77 + step], theirs.sequences[row, 77 + step])
                compared += 1
        self.assertGreater(compared, 4)

    def test_tokens_of_prefill_and_decode(self):
        self.same_tokens_where_no_two_are_about_as_likely(self.generate(self.ours), self.generate(self.theirs))

    def test_tokens_of_prefill_and_paged_decode(self):
        ours = self.generate(self.ours, past_key_values=self.cache())
        self.same_tokens_where_no_two_are_about_as_likely(ours, self.generate(self.theirs))

    @torch.no_grad()
    def test_a_prompt_in_chunks_finds_its_beginning_in_the_pages(self):
        cache = self.cache()
        self.ours(self.prompt[:, :50], past_key_values=cache)
        logits = self.ours(self.prompt[:, 50:], past_key_values=cache).logits
        self.near(logits, self.theirs(self.prompt).logits[:, 50:])

    @torch.no_grad()
    def test_a_paged_step_is_captured_and_replayed_at_other_lengths(self):
        cache, reference = self.cache(), transformers.DynamicCache(config=self.theirs.config)
        self.ours(self.prompt, past_key_values=cache)
        self.theirs(self.prompt, past_key_values=reference)
        ids, positions = self.prompt[:, :1].clone(), torch.full((2, 1), 77, device="cuda")
        near = lambda ours: self.near(ours, self.theirs(ids, position_ids=positions, past_key_values=reference).logits)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            logits = self.ours(ids, position_ids=positions, past_key_values=cache).logits
        torch.cuda.synchronize()
        near(logits)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # captured, not run: lengths on the device stay as they are
            logits = self.ours(ids, position_ids=positions, past_key_values=cache).logits
        for step in range(1, 55):  # over the end of a page
            ids.copy_(self.prompt[:, step:step + 1])
            positions.fill_(77 + step)
            graph.replay()
            near(logits)

    @torch.no_grad()
    def test_a_full_cache_is_named(self):
        cache = tilewave_transformers.paged_cache(self.ours.config, 2, 64, "cuda")
        with self.assertRaisesRegex(ValueError, "has room for 64 tokens of a sequence, not for 77"):
            self.ours(self.prompt, past_key_values=cache)

    @torch.no_grad()
    def test_under_torch_compile(self):
        compiled = torch.compile(self.ours.forward, fullgraph=True)
        self.near(compiled(self.prompt, use_cache=False).logits, self.theirs(self.prompt).logits)

    @torch.no_grad()
    def test_a_prompt_is_captured(self):
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
    built = sys.argv.pop() if len(sys.argv) > 1 else None
    if built and built.endswith(".so"):
        torch.ops.load_library(built)
    else:
        tilewave_torch.load(build_directory=built, only=("attention",))
    tilewave_transformers.register()
    unittest.main()
