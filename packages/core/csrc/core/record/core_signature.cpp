#include "record/core_signature.h"

#include <algorithm>
#include <cctype>

namespace rabbet {

namespace {

class Reader {
 public:
  Reader(const std::string& text, CoreSignature& out) : text_(text), out_(out) {}

  bool read(uint64_t tensors, int nrets, std::string& error) {
    const bool ok = groups(out_.args, true) && arrow() && groups(out_.rets, false) && at_end() &&
                    assign(tensors, nrets);
    if (!ok) error = error_.empty() ? "expected '(m,n),...->(m,n)'" : error_;
    return ok;
  }

 private:
  bool refuse(const std::string& why) {
    error_ = why;
    return false;
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(const char* s) {
    skip();
    const size_t n = std::char_traits<char>::length(s);
    if (text_.compare(at_, n, s) != 0) return false;
    at_ += n;
    return true;
  }
  bool arrow() { return accept("->"); }
  bool at_end() {
    skip();
    return at_ == text_.size();
  }

  bool groups(std::vector<CoreGroup>& to, bool arguments) {
    do {
      CoreGroup group;
      if (arguments && accept("*")) {
        group.any = true;
      } else if (!accept("(") || !dimensions(group, arguments)) {
        return false;
      }
      to.push_back(group);
    } while (accept(","));
    return true;
  }

  bool dimensions(CoreGroup& group, bool arguments) {
    if (accept(")")) return true;
    if (accept("...")) {
      group.batch = true;
      if (accept(")")) return true;
      if (!accept(",")) return false;
    }
    do {
      if (group.ndim == kMaxCoreDims)
        return refuse("more than " + std::to_string(kMaxCoreDims) + " dimensions");
      const int size = this->size(arguments);
      if (size < 0) return false;
      if (accept("?")) group.optional |= static_cast<uint8_t>(1u << group.ndim);
      group.sizes[group.ndim++] = static_cast<int8_t>(size);
    } while (accept(","));
    return accept(")");
  }

  // The index of the size that is written here; -1: there is none.
  int size(bool arguments) {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string name = text_.substr(start, at_ - start);
    if (name.empty() || name.size() > 18) return -1;
    for (size_t i = 0; i < out_.names.size(); ++i) {
      if (out_.names[i] == name) return static_cast<int>(i);
    }
    const bool number = name.find_first_not_of("0123456789") == std::string::npos;
    if (!number && std::isdigit(static_cast<unsigned char>(name[0]))) return -1;
    if (!number && !arguments) {
      refuse("the size '" + name + "' of a result stands in no argument");
      return -1;
    }
    if (out_.names.size() == kMaxCoreSizes) {
      refuse("more than " + std::to_string(kMaxCoreSizes) + " sizes");
      return -1;
    }
    out_.names.push_back(name);
    out_.fixed.push_back(number ? std::stoll(name) : -1);
    return static_cast<int>(out_.names.size()) - 1;
  }

  bool assign(uint64_t tensors, int nrets) {
    size_t next = 0;
    for (int i = 0; i < 64; ++i) {
      if (!(tensors >> i & 1)) continue;
      if (next == out_.args.size()) return refuse("a group for each Tensor argument is needed");
      out_.args[next++].index = static_cast<int8_t>(i);
    }
    if (next != out_.args.size())
      return refuse("there are " + std::to_string(out_.args.size()) + " groups for " +
                    std::to_string(next) + " Tensor arguments");
    if (static_cast<int>(out_.rets.size()) != nrets)
      return refuse("there are " + std::to_string(out_.rets.size()) + " groups for " +
                    std::to_string(nrets) + " results");
    for (int r = 0; r < nrets; ++r) out_.rets[r].index = static_cast<int8_t>(r);
    out_.plain = std::all_of(out_.fixed.begin(), out_.fixed.end(), [](int64_t n) { return n < 0; });
    for (const CoreGroup& g : out_.args) out_.plain &= !g.any;
    return true;
  }

  const std::string& text_;
  CoreSignature& out_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace

bool parse_core(const std::string& text, uint64_t tensors, int nrets, CoreSignature& out,
                std::string& error) {
  return Reader(text, out).read(tensors, nrets, error);
}

}  // namespace rabbet
