// Reads the record language line by line. Grammar and fields: docs/reference/records.md.
#pragma once
#include <set>

#include "record/line_text.h"
#include "record/op.h"
#include "thread/error.h"

namespace rabbet {

class RecordParser {
 public:
  explicit RecordParser(const std::string& file)
      : file_(file), shared_defs_(std::make_shared<std::vector<Definition>>()) {}

  // `first`: the number of the first line.
  std::vector<std::unique_ptr<Op>> run(const std::string& text, int first = 1);

 private:
  [[noreturn]] void error(const std::string& message) const;
  [[noreturn]] void error_at(const std::string& part, const std::string& message) const;
  void take(const std::string& raw, int number);
  void read_line();
  int kind(const std::string& name) const;

  // ---- signatures (record_signature.cpp)

  void signature(const std::string& line);
  void parameters(const std::string& text);
  Param parameter(const std::string& part);
  void parameter_type(Param& p, std::string type, const std::string& part);
  void choices(Param& p, std::string& type, const std::string& part);
  RbValue default_value(Param& p);
  void results(const std::string& text);

  // ---- fields (records.cpp)

  Param& param(const std::string& name, const char* field);
  void field(const std::string& line);
  void parts(const std::string& value);
  int result_index(const std::string& name, const char* field) const;
  void layout(std::string value);
  void jvp(const std::string& value);
  void batch(const std::string& value);
  uint8_t dtype_classes(const std::string& value) const;
  void check(const std::string& value);
  void identity(const std::string& value);
  void join(const std::string& value);
  void reduce(const std::string& value);
  void definition(const std::string& value, std::vector<Definition>& to);
  std::string place() const { return file_ + ":" + std::to_string(line_); }

  void expose(const std::string& value);
  void expose_in_module(const std::string& entry);
  void autocast(const std::string& value);

  // ---- what follows from the fields (record_defaults.cpp)

  void finish_record();
  void default_exposure();
  void core_dims();
  void reduced_arguments();
  void dtype_rules();
  void shape_rule();
  struct Form {
    std::string text;
    int line;
    std::vector<RecordLine> examples;  // that stand directly below
  };
  void other_form(const Op& main, const Form& written, int number);

  std::string file_;
  std::shared_ptr<std::vector<Definition>> shared_defs_;
  std::string pending_;  // the line that is read once the next one does not continue it
  size_t indent_ = 0;    // of `pending_`
  int line_ = 0;         // where it begins
  int op_line_ = 0;      // where the record begins
  int family_kind_ = RB_KIND_OPAQUE;
  std::vector<Form> forms_;  // `or` lines
  bool below_or_ = false;
  std::set<std::string> seen_;  // fields that a record has once
  std::unique_ptr<Op> op_;
  std::vector<std::unique_ptr<Op>> ops_;
};
}  // namespace rabbet
