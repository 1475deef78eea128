// SPDX-License-Identifier: MIT
// A list has what was added, in order, and can be a template argument.
#include "tilewave/core/value_list.hpp"

#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

constexpr ValueList<int, 3> odd_numbers_up_to(int last) {
  ValueList<int, 3> list;
  for (int i = 1; i <= last; i += 2) list.add(i);
  return list;
}

template <ValueList<int, 3> list>
constexpr int last_of = list.back();

TEST_CASE("a list has what was added, in order") {
  constexpr ValueList<int, 3> two = odd_numbers_up_to(3), three = odd_numbers_up_to(5);
  CHECK(std::vector<int>(two.begin(), two.end()) == std::vector<int>{1, 3});
  CHECK(two.size() == 2);
  CHECK(!two.full());
  CHECK(three.full());
  CHECK(three.size() == three.capacity);
  CHECK((three[0] == 1 && three[2] == 5));
  CHECK(odd_numbers_up_to(0).size() == 0);
}

TEST_CASE("a list that grows lets its last value be changed, and may be a template argument") {
  ValueList<int, 3> list = odd_numbers_up_to(1);
  list.back() = 7;
  list.add(8);
  CHECK((list[0] == 7 && list.back() == 8));
  CHECK(last_of<odd_numbers_up_to(3)> == 3);
}

}  // namespace
}  // namespace tilewave::test
