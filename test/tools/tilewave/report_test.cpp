// SPDX-License-Identifier: MIT
#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/report/page.hpp"

namespace report_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::status_of;

const std::string rows = "mtp,us,err,gbps,roof_pct\n1,10,0,100,50\n1,40,0,400,nan\n2,nan,1,nan,nan\n";
bool has(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }
}  // namespace

TEST_CASE("classes are summed up by geometric means of the rows that have a number") {
  const auto classes = summarise(parse_csv(rows, "x.csv"), {});
  REQUIRE(classes.size() == 2);
  CHECK(*classes[0].us == Approx(20));
  CHECK(*classes[0].gbps == Approx(200));
  CHECK(*classes[0].roof_pct == Approx(50));
  CHECK_FALSE(classes[0].tflops.has_value());
  CHECK(classes[1].wrong == 1);
  CHECK(classes[1].untimed == 1);
  CHECK_FALSE(classes[1].us.has_value());
}

TEST_CASE("modelled times are summed up as such, rates from them") {
  const Csv csv = parse_csv("us,err,model_us,bytes_ideal,flops,roof_us\nnan,0,10,1e6,2e6,5\n", "x.csv");
  const ClassSummary c = summarise(csv, {}, "model_us").front();
  CHECK(*c.gbps == Approx(100));
  CHECK(*c.tflops == Approx(0.2));
  CHECK(*c.roof_pct == Approx(50));
  CHECK(has(summary_html(csv, {}, nullptr, "model_us"), "1 of them with modelled times, not measured"));
}

TEST_CASE("a ledger is a table of kernels by models") {
  const std::string html =
      ledger_html(parse_csv("kernel,model,us,baseline_us\nsoftmax,A<B,1,2\nsoftmax,A<B,1,8\nnorm,C,2,1\n", "l.csv"));
  CHECK(has(html, "<th>A&lt;B</th>"));
  CHECK(has(html, "4.00 (2)"));
  CHECK(has(html, "0.50 (1)"));
  CHECK(has(ledger_html(parse_csv("kernel,model,shape,speedup\nnorm,C,r<8,2\n", "l.csv")), "<td>r&lt;8</td>"));
  CHECK(status_of([] { ledger_html(parse_csv("kernel,model,speedup\na,b,0\n", "l.csv")); }) == Exit::usage);
  CHECK(status_of([] { ledger_html(parse_csv("kernel,model\na,b\n", "l.csv")); }) == Exit::usage);
}

TEST_CASE("a campaign shows its history by class") {
  State s;
  Round r;
  r.number = 1, r.status = "baseline", r.commit = "c", r.us = 10, r.classes = {{"mtp=1", 10}},
  r.proposal.hypothesis = "<script>";
  conclude_round(s, r);
  r.number = 2, r.status = "keep", r.us = 8, r.classes = {{"mtp=1", 8}};
  conclude_round(s, r);
  const std::string html = campaign_html("c", s);
  CHECK(has(html, "round 2, keep: mtp=1, 8.000 us"));
  CHECK(has(html, "&lt;script&gt;"));
  CHECK_FALSE(has(html, "<script>"));
}

TEST_CASE("speedups stand beside the names, the slowest first, in colours") {
  const std::string head = "kind,mtp,us,err,cv_pct\n";
  const Csv base = parse_csv(head + "pa,1,10,0,0\npa,2,10,0,0\npa,4,10,0,0\n", "b.csv"),
            cand = parse_csv(head + "pa,1,10,0,0\npa,2,5,0,0\npa,4,20,0,0\n", "c.csv");
  CompareOptions options;
  options.by = {"kind", "mtp"};
  const std::string html = comparison_html("b.csv", "c.csv", compare(base, cand, options));
  CHECK(has(html, "<th>class</th><th>speedup</th>"));
  CHECK(has(html, "<p>All: kind=pa</p>"));
  const std::size_t slow = html.find("<td>mtp=4</td><td class=n><span class=down>0.500</span>"),
                    same = html.find("<td>mtp=1</td><td class=n><span class=same>1.000</span>"),
                    fast = html.find("<td>mtp=2</td><td class=n><span class=up>2.000</span>");
  CHECK(slow < same);
  CHECK(same < fast);
  CHECK(fast != std::string::npos);
  const std::string ledger =
      ledger_html(parse_csv("kernel,model,shape,speedup\nnorm,C,r8,2\nnorm,C,r9,0.5\ngemm,C,r7,1\n", "l.csv"));
  CHECK(has(ledger, "<th>kernel</th><th>speedup</th><th>C</th>"));
  CHECK(has(ledger,
            "<td>norm</td><td class=n><span class=same>1.00</span></td><td class=n><span class=same>1.00 (2)</span>"));
  CHECK(ledger.find("<td>r7</td>") < ledger.find("<td>r9</td>"));
  CHECK(ledger.find("<td>r9</td>") < ledger.find("<td>r8</td>"));
}

TEST_CASE("a campaign's picture says which line is which class") {
  State s;
  Round r;
  r.number = 1, r.status = "baseline", r.commit = "c", r.us = 10, r.proposal.hypothesis = "first";
  for (int i = 0; i < 10; ++i) r.classes["op=pa mtp=" + std::to_string(i)] = 10 + i;
  conclude_round(s, r);
  r.number = 2, r.status = "keep", r.us = 8;
  conclude_round(s, r);
  const std::string html = campaign_html("c", s);
  CHECK(has(html, "<ul class=legend>"));
  CHECK(has(html, "<p>All: op=pa</p>"));
  for (int i = 0; i < 10; ++i) CHECK(has(html, "</svg>mtp=" + std::to_string(i) + "</li>"));
  CHECK(has(html, "stroke-dasharray"));  // of the ninth line, which has the first one's colour
}

TEST_CASE("tables of compiled kernels are on the page") {
  const std::string html = isa_html({"clang <22>", true, {{"Hot", {"arch", "kernel"}, {{"gfx950", "a<b>"}}}}});
  CHECK(has(html, "<h3>Hot</h3>"));
  CHECK(has(html, "<td>a&lt;b&gt;</td>"));
  CHECK(has(html, "clang &lt;22&gt;"));
}

TEST_CASE("any bytes make the page or an error") {
  CHECK(fuzz(
            rows,
            [](const std::string& text) {
              const std::string page =
                  page_html("t", {summary_html(parse_csv(text, "x"), {}, nullptr), table_html(parse_csv(text, "x"))});
              if (page.find("</html>") == std::string::npos) throw std::logic_error("half a page");
            },
            600) > 0);
  CHECK(fuzz(
            "kernel,model,speedup\nsoftmax,llama,1.5\nnorm,llama,0.9\n",
            [](const std::string& text) { ledger_html(parse_csv(text, "x")); }, 600) > 0);
}

TEST_CASE("pages show cycles and the clock beside a modelled time") {
  const std::string head = "name,m,us,err,model_us,model_clk,model_mhz,model_error_pct,model_chip,bytes_ideal,flops\n";
  const Csv csv = parse_csv(head + "a,1,nan,0,22,40000,2000,0,MI355X,1e6,2e6\n", "x.csv"),
            cand = parse_csv(head + "b,1,nan,0,23,31500,1500,0,MI355X,1e6,2e6\n", "y.csv");
  const std::string page = summary_html(csv, {}, nullptr, "model_us");
  for (const char* text : {"<th>model_clk</th><th>model_mhz</th>", "<td class=n>40000</td><td class=n>2000</td>"})
    CHECK(has(page, text));
  CHECK_FALSE(has(summary_html(csv, {}, nullptr), "model_clk"));
  CompareOptions options;
  options.map.us = "model_us";
  const std::string pair = comparison_html("x.csv", "y.csv", compare(csv, cand, options));
  for (const char* text : {"ranked by model_clk", "base model_mhz", "<td class=n>31500</td>", "<td class=n>1500</td>"})
    CHECK(has(pair, text));
  std::size_t untimed = 0;
  const auto points = points_of(csv, {}, untimed, "model_us");
  CHECK(points[0].cycles.clk == 40000);
  Roof roof{.chip = "MI355X",
            .peak_key = "bf16_flops",
            .flops_per_s = 1e15,
            .bytes_per_s = 1e12,
            .flops_source = {},
            .bytes_source = {}};
  CHECK(has(roofline_svg(roof, points), "22 us (40000 clk at 2000 MHz)"));
}

}  // namespace report_tests
