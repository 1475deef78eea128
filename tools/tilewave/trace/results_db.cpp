// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <sqlite3.h>

#include <cmath>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/dispatches.hpp"

namespace tilewave::tool {

namespace {

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    sqlite3* db = nullptr;
    const int opened = ::sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr);
    db_.reset(db);
    if (opened != SQLITE_OK) fail(db != nullptr ? ::sqlite3_errmsg(db) : "no memory");
    // A file of somebody else's: its views may call no functions but harmless ones, and no query runs for ever.
    ::sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    ::sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    ::sqlite3_progress_handler(
        db, 1000000, [](void* left) { return static_cast<int>(--*static_cast<int*>(left) < 0); }, &steps_left_);
  }

  [[noreturn]] void fail(const std::string& why) const {
    refuse(fmt::format("{} is no database of rocprofv3: {}", path_, printable(why, 200)));
  }

  /// One row of a query.
  class Row {
   public:
    Row(sqlite3_stmt* statement, const Database& of) : statement_(statement), of_(of) {}
    std::string text(int column) const {
      const unsigned char* value = ::sqlite3_column_text(statement_, column);
      return value == nullptr ? "" : reinterpret_cast<const char*>(value);
    }
    std::int64_t integer(int column) const {
      if (::sqlite3_column_type(statement_, column) != SQLITE_INTEGER)
        of_.fail(fmt::format("'{}' of column {} is no integer", text(column), name(column)));
      return ::sqlite3_column_int64(statement_, column);
    }
    /// An amount from 0 on; nothing where it is NULL.
    std::optional<double> amount(int column) const {
      const int type = ::sqlite3_column_type(statement_, column);
      if (type == SQLITE_NULL) return std::nullopt;
      const double value = ::sqlite3_column_double(statement_, column);
      if ((type != SQLITE_INTEGER && type != SQLITE_FLOAT) || !std::isfinite(value) || value < 0)
        of_.fail(fmt::format("'{}' of column {} is no amount", text(column), name(column)));
      return value;
    }

   private:
    std::string name(int column) const { return ::sqlite3_column_name(statement_, column); }
    sqlite3_stmt* statement_;
    const Database& of_;
  };

  template <class Visit>
  void query(const char* sql, const Visit& visit) const {
    sqlite3_stmt* prepared = nullptr;
    if (::sqlite3_prepare_v2(db_.get(), sql, -1, &prepared, nullptr) != SQLITE_OK) fail(::sqlite3_errmsg(db_.get()));
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &::sqlite3_finalize);
    int step = SQLITE_ROW;
    while ((step = ::sqlite3_step(prepared)) == SQLITE_ROW) visit(Row(prepared, *this));
    if (step != SQLITE_DONE) fail(::sqlite3_errmsg(db_.get()));
  }

 private:
  const std::string& path_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> db_{nullptr, &::sqlite3_close};
  int steps_left_ = 20000;  // of a million instructions of SQLite's machine
};

}  // namespace

Recording read_results_db(const std::string& path) {
  const Database db(path);
  Recording recording;
  // Merged databases hold several processes, of which each has its own numbers: guid tells them apart.
  db.query(
      "SELECT S.display_name, K.guid || '/' || K.agent_id || '/' || K.queue_id, K.start, K.end, S.arch_vgpr_count, "
      "S.accum_vgpr_count, S.sgpr_count, K.group_segment_size, K.private_segment_size, "
      "1.0 * K.workgroup_size_x * K.workgroup_size_y * K.workgroup_size_z, "
      "1.0 * K.grid_size_x * K.grid_size_y * K.grid_size_z "
      "FROM rocpd_kernel_dispatch K JOIN rocpd_info_kernel_symbol S ON S.id = K.kernel_id AND S.guid = K.guid "
      "ORDER BY K.start",
      [&](const Database::Row& row) {
        Dispatch d{row.text(0), row.text(1), row.integer(2), row.integer(3), {}};
        if (d.kernel.empty()) db.fail("a kernel without a name");
        if (d.begin_ns < 0 || d.end_ns < d.begin_ns) db.fail("timestamps that are no interval");
        int column = 4;
        for (const char* key : {"vgpr", "accum_vgpr", "sgpr", "lds_bytes", "scratch_bytes", "workgroup", "grid"}) {
          if (const auto value = row.amount(column++)) d.launch[key] = *value;
        }
        recording.dispatches.push_back(std::move(d));
      });
  // A counter comes once for each XCC, engine or channel that has it; a replayed dispatch is an event for each pass.
  db.query(
      "SELECT S.display_name, I.name, K.guid, K.dispatch_id, SUM(E.value) "
      "FROM rocpd_pmc_event E JOIN rocpd_info_pmc I ON I.id = E.pmc_id AND I.guid = E.guid "
      "JOIN rocpd_kernel_dispatch K ON K.event_id = E.event_id AND K.guid = E.guid "
      "JOIN rocpd_info_kernel_symbol S ON S.id = K.kernel_id AND S.guid = K.guid "
      "GROUP BY K.guid, K.id, I.name",
      [&](const Database::Row& row) {
        CounterRow counter{row.text(0), row.text(1), "", "", row.text(2), row.text(3), row.amount(4).value_or(0)};
        if (counter.kernel.empty() || counter.counter.empty()) db.fail("a counter without kernel or name");
        recording.counters.push_back(std::move(counter));
      });
  return recording;
}

}  // namespace tilewave::tool
