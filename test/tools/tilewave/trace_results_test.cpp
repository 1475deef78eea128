// SPDX-License-Identifier: MIT
// results.json and results.db of rocprofv3, in the shape of its 1.1 and of schema rocpd 3.
#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace trace_results_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::fuzz;
using tilewave::test::status_of;
namespace fs = std::filesystem;

struct Folder {
  explicit Folder(const std::string& name)
      : path(fs::temp_directory_path() / ("tilewave_trace_results_" + name + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

std::string json_launch(int kernel, const std::string& times) {
  return R"json({"size": 1, "start_timestamp": )json" + times +
         R"json(, "dispatch_info": {"agent_id": {"handle": 18446744073709551615},
   "queue_id": {"handle": 1}, "kernel_id": )json" +
         std::to_string(kernel) +
         R"json(, "dispatch_id": 1, "private_segment_size": 0, "group_segment_size": 32768, "workgroup_size": {"x": 64, "y": 2, "z": 2},
   "grid_size": {"x": 6400, "y": 2, "z": 2}}})json";
}
// One dispatch, counted in two passes; SQ_WAVES by each of two engines.
std::string json_count(int valu) {
  return R"json({"thread_id": 3, "dispatch_data": {"dispatch_info": {"dispatch_id": 1, "kernel_id": 2}, "start_timestamp": 0},
   "records": [{"counter_id": {"handle": 50}, "value": 40.0}, {"counter_id": {"handle": 50}, "value": 24.0},
   {"counter_id": {"handle": 51}, "value": )json" +
         std::to_string(valu) + "}]}";
}
const std::string results =
    R"json({"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}, "kernel_symbols": [{"kernel_id": 0},
  {"kernel_id": 1, "kernel_name": "_Z4fillv.kd", "formatted_kernel_name": "fill()", "arch_vgpr_count": 8, "accum_vgpr_count": 0, "sgpr_count": 16},
  {"kernel_id": 2, "kernel_name": "_Z6decodev.kd", "formatted_kernel_name": "decode()", "arch_vgpr_count": 124, "accum_vgpr_count": 4, "sgpr_count": 96}],
  "counters": [{"id": {"handle": 50}, "name": "SQ_WAVES"}, {"id": {"handle": 51}, "name": "SQ_INSTS_VALU"}],
  "callback_records": {"counter_collection": [)json" +
    json_count(900) + "," + json_count(1100) + R"json(]}, "buffer_records": {"kernel_dispatch": [)json" +
    json_launch(1, R"json(1000, "end_timestamp": 3000)json") + "," +
    json_launch(2, R"json(2000, "end_timestamp": 12000)json") + "," +
    json_launch(2, R"json(13000, "end_timestamp": 33000)json") + "]}}]}";

/// The tables of which a profile is made, with the names and columns of rocpd_tables.sql and rocpd_views.sql.
const std::string tables = R"json(
CREATE TABLE rocpd_info_kernel_symbol_u (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, code_object_id INTEGER,
  kernel_name TEXT, display_name TEXT, group_segment_size INTEGER, private_segment_size INTEGER, sgpr_count INTEGER,
  arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);
CREATE TABLE rocpd_kernel_dispatch_u (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
  kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, end BIGINT, private_segment_size INTEGER,
  group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER,
  grid_size_y INTEGER, grid_size_z INTEGER, region_name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_info_pmc_u (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, agent_id INTEGER, name TEXT);
CREATE TABLE rocpd_pmc_event_u (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, pmc_id INTEGER, value REAL);
CREATE VIEW rocpd_info_kernel_symbol AS SELECT * FROM rocpd_info_kernel_symbol_u;
CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM rocpd_kernel_dispatch_u;
CREATE VIEW rocpd_info_pmc AS SELECT * FROM rocpd_info_pmc_u;
CREATE VIEW rocpd_pmc_event AS SELECT * FROM rocpd_pmc_event_u;
)json";
const std::string rows = R"json(
INSERT INTO rocpd_info_kernel_symbol_u VALUES (1, 'g', 1, 1, 1, '_Z4fillv.kd', 'fill()', 0, 0, 16, 8, 0),
  (2, 'g', 1, 1, 1, '_Z6decodev.kd', 'decode()', 0, 0, 96, 124, 4);
INSERT INTO rocpd_kernel_dispatch_u VALUES (1, 'g', 1, 1, 1, 1, 1, 1, 1, 1, 1000, 3000, 0, 0, 64, 1, 1, 64, 1, 1, 1, 10),
  (2, 'g', 1, 1, 1, 1, 2, 2, 1, 1, 2000, 12000, 0, 32768, 64, 2, 2, 6400, 2, 2, 1, 11),
  (3, 'g', 1, 1, 1, 1, 2, 3, 1, 1, 13000, 33000, 0, 32768, 64, 2, 2, 6400, 2, 2, 1, 12);
INSERT INTO rocpd_info_pmc_u VALUES (1, 'g', 1, 1, 1, 'SQ_WAVES');
INSERT INTO rocpd_pmc_event_u VALUES (1, 'g', 11, 1, 40), (2, 'g', 11, 1, 24), (3, 'g', 12, 1, 32);
)json";

void make_db(const fs::path& path, const std::string& sql) {
  fs::remove(path);
  sqlite3* db = nullptr;
  REQUIRE(::sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  char* message = nullptr;
  if (::sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message) != SQLITE_OK) FAIL(message);
  ::sqlite3_close(db);
}

void check_launches(const Profile& p) {
  REQUIRE(p.times);
  REQUIRE(p.times->kernels.size() == 2);
  const KernelTime& decode = p.times->kernels[0];
  CHECK(decode.name == "decode()");
  CHECK(decode.calls == 2);
  CHECK(decode.total_us == 30);
  CHECK(decode.launch.at("vgpr") == 124);
  CHECK(decode.launch.at("accum_vgpr") == 4);
  CHECK(decode.launch.at("lds_bytes") == 32768);
  CHECK(decode.launch.at("workgroup") == 256);
  CHECK(decode.launch.at("grid") == 25600);
  CHECK(p.times->kernels[1].overlapping == 1);
}
}  // namespace

TEST_CASE("results json of rocprofv3 gives launches and counters") {
  const Folder folder("json");
  write_atomically(folder.path / "out_results.json", results);
  const Profile p = read_profile(folder.path.string());
  check_launches(p);
  const auto& counters = p.counters->per_dispatch.at("decode()");
  CHECK(counters.at("SQ_WAVES") == 64);  // of two engines, and of two passes the mean
  CHECK(counters.at("SQ_INSTS_VALU") == 1000);
  CHECK(p.counters->dispatches.at("decode()") == 1);
  CHECK(p.files == std::vector<std::string>{"out_results.json"});
}

TEST_CASE("results db of rocprofv3 gives launches and counters") {
  const Folder folder("db");
  const fs::path db = folder.path / "7_results.db";
  make_db(db, tables + rows);
  const Profile p = read_profile(folder.path.string());
  check_launches(p);
  CHECK(p.counters->per_dispatch.at("decode()").at("SQ_WAVES") == 48);
  CHECK(p.counters->dispatches.at("decode()") == 2);
  CHECK(p.files == std::vector<std::string>{"7_results.db"});

  const auto refused = [&](const std::string& sql) {
    make_db(db, sql);
    std::string message;
    const Exit status = status_of([&] { read_results_db(db.string()); }, &message);
    CHECK(message.find(db.string() + " is no database of rocprofv3: ") == 0);
    return status == Exit::usage;
  };
  CHECK(refused("CREATE TABLE t (x)"));
  CHECK(refused(tables + rows + "UPDATE rocpd_kernel_dispatch_u SET start = 'soon'"));
  CHECK(refused(tables + rows + "UPDATE rocpd_kernel_dispatch_u SET end = start - 1"));
  CHECK(refused(tables + rows + "UPDATE rocpd_info_kernel_symbol_u SET display_name = NULL"));
  CHECK(refused(tables + rows + "UPDATE rocpd_info_kernel_symbol_u SET arch_vgpr_count = -1"));
  CHECK(refused(tables + rows + "UPDATE rocpd_pmc_event_u SET value = 9e999"));
  write_atomically(db, "SQLite format 3\0 and nothing more");
  CHECK(status_of([&] { read_results_db(db.string()); }) == Exit::usage);
  CHECK(status_of([&] { read_results_db((folder.path / "none.db").string()); }) == Exit::usage);
}

TEST_CASE("a database is damaged at any byte, and is read or refused") {
  const Folder folder("db_fuzz");
  const fs::path db = folder.path / "x_results.db";
  make_db(db, "PRAGMA page_size = 512;" + tables + rows);
  CHECK(fuzz(
            read_file(db.string()),
            [&](const std::string& bytes) {
              write_atomically(db, bytes);
              read_results_db(db.string());
            },
            300) > 0);
}

TEST_CASE("of the formats of one run each launch counts once") {
  const Folder folder("formats");
  write_atomically(folder.path / "out_results.json", results);
  make_db(folder.path / "out_results.db", tables + rows);
  Profile p = read_profile(folder.path.string());
  check_launches(p);
  CHECK(p.counters->per_dispatch.at("decode()").at("SQ_WAVES") == 48);  // the database's
  write_atomically(folder.path / "out_kernel_trace.csv",
                   "Kind,Kernel_Name,Start_Timestamp,End_Timestamp\nKERNEL_DISPATCH,decode(),2000,12000\n");
  p = read_profile(folder.path.string());
  CHECK(p.times->kernels.size() == 1);
  CHECK(p.times->kernels[0].calls == 1);
  CHECK(p.counters->per_dispatch.at("decode()").at("SQ_WAVES") == 48);
  // Another run's launches are others.
  write_atomically(folder.path / "second_results.json", results);
  CHECK(read_profile(folder.path.string()).times->kernels[0].calls == 3);
}

TEST_CASE("json that is not of rocprofv3 is passed over, and one that is and says nonsense is refused") {
  CHECK(parse_results_json("[1, 2", "r").dispatches.empty());
  CHECK(parse_results_json(R"json({"results": []})json", "r").dispatches.empty());
  const auto with = [](const std::string& what, const std::string& other) {
    std::string text = results;
    const std::size_t at = text.find(what);
    REQUIRE(at != text.npos);
    return text.replace(at, what.size(), other);
  };
  const std::pair<const char*, const char*> wrong[] = {
      {R"json("end_timestamp": 3000)json", R"json("end_timestamp": 999)json"},
      {R"json("pid": 7)json", R"json("pid": "seven")json"},
      {R"json("kernel_id": 1, "disp)json", R"json("kernel_id": 9, "disp)json"},
      {R"json("value": 40.0)json", R"json("value": -1)json"},
      {R"json("handle": 51}, "value")json", R"json("handle": 52}, "value")json"},
      {R"json("x": 64)json", R"json("x": 1.5)json"},
      {R"json("arch_vgpr_count": 8)json", R"json("arch_vgpr_count": -8)json"},
      {R"json("kernel_dispatch": [)json", R"json("kernel_dispatch": 1, "x": [)json"}};
  for (const auto& [what, other] : wrong) {
    const std::string text = with(what, other);
    CHECK(status_of([&] { parse_results_json(text, "r"); }) == Exit::usage);
  }
  CHECK(fuzz(results, [](const std::string& text) { parse_results_json(text, "r"); }) > 0);
}

}  // namespace trace_results_tests
