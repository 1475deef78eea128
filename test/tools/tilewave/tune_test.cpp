// SPDX-License-Identifier: MIT
#include "tools/tilewave/tune/tune.hpp"

#include <regex>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::status_of;

const std::string tried =
    "name,mtp,batch_size,lanes,vec,us,err\na,1,1,64,8,10,0\nb,1,1,128,8,20,0\nc,1,2,64,8,40,0\nd,1,2,128,8,20,0\n"
    "e,1,2,256,8,1,1\nf,2,1,64,8,5,1\ng,1,1,256,8,1,1\n";
}  // namespace

TEST_CASE("the best policy of a class is the one that loses least over all its configs") {
  const Tuned t = judge_tuning(parse_csv(tried, "t"), nullptr, {"mtp"});
  REQUIRE(t.configs.size() == 3);
  CHECK(t.configs[1].tried.front().policy == "lanes=128 vec=8");  // the wrong one is faster, and last
  CHECK_FALSE(t.configs[1].tried.back().right);
  REQUIRE(t.classes.size() == 2);
  CHECK(t.classes[0].loss == Approx(std::sqrt(2.0)));
  CHECK(t.classes[0].wrong == 2);
  CHECK(t.classes[0].policy != "lanes=256 vec=8");
  CHECK(t.classes[1].policy.empty());  // nothing right was tried
  const Csv selected = parse_csv("mtp,batch_size,lanes,vec,us,err\n1,1,128,8,20,0\n1,2,128,8,20,0\n", "s");
  CHECK(*judge_tuning(parse_csv(tried, "t"), &selected, {"mtp"}).classes[0].selected_loss == Approx(std::sqrt(2.0)));
}

TEST_CASE("what was tried twice or has no time is refused") {
  CHECK(status_of([] {
          judge_tuning(parse_csv("name,mtp,lanes,us,err\na,1,64,10,0\nb,1,64,11,0\n", "t"), nullptr, {});
        }) == Exit::refused);
  CHECK(status_of([] { judge_tuning(parse_csv("name,mtp,lanes,us,err\na,1,64,nan,0\n", "t"), nullptr, {}); }) ==
        Exit::usage);
  CHECK(fuzz(tried, [](const std::string& text) {
          for (const TunedConfig& c : judge_tuning(parse_csv(text, "t"), nullptr, {}).configs) {
            if (c.tried.empty()) throw std::logic_error("a config without candidates");
          }
        }) > 0);
}

TEST_CASE("a filter takes the rows named and no longer ones") {
  const std::regex filter(filter_of({"a/c8.v16", "b+(x)"}));
  CHECK(std::regex_search("a/c8.v16", filter));
  CHECK(std::regex_search("a/c8.v16/iterations:1/manual_time", filter));
  CHECK(std::regex_search("b+(x)", filter));
  CHECK_FALSE(std::regex_search("a/c8.v16.nt", filter));
  CHECK_FALSE(std::regex_search("a/c8xv16", filter));
  CHECK_FALSE(std::regex_search("za/c8.v16", filter));
}

TEST_CASE("a shard is i of n") {
  CHECK(parse_shard("2/3") == std::pair(2, 3));
  for (const char* bad : {"", "0/1", "2/1", "1", "a/b", "1/2/3", "-1/2", "1/0"})
    CHECK(status_of([&] { parse_shard(bad); }) == Exit::usage);
}
