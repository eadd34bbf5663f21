/* Runs a linear layer and a softmax on the CPU, in C, without Python. Build it with the paths that
 * `python -m rabbet` knows (README.md); it finds the CPU's kernels by the manifest of their wheel. */
#include <stdio.h>
#include <string.h>

#include "rabbet/program.h"

static const RbHost* host;
static int32_t cpu;

/* Print the error of a call that failed, and pass its code on. */
static int32_t checked(const char* what, int32_t code) {
  if (code != RB_OK) fprintf(stderr, "%s: %s\n", what, host->err_get()->message);
  return code;
}

/* A float32 tensor on the CPU with these values; its tag is RB_NONE if there is none. */
static RbValue tensor(int32_t rows, int32_t columns, const float* values) {
  const int64_t shape[] = {rows, columns};
  const int64_t* sizes = rows ? shape : shape + 1; /* no rows: a vector */
  RbValue made = {RB_NONE, 0, {0}};
  RbTensor* t;
  if (checked("tensor_new", host->tensor_new(cpu, 0, RB_F32, rows ? 2 : 1, sizes, NULL, &t)))
    return made;
  memcpy(t->data, values, (size_t)t->numel * sizeof(float));
  made.tag = RB_TENSOR;
  made.v.t = t;
  return made;
}

static int32_t call(const char* op, const RbValue* args, int32_t nargs, RbValue* result) {
  return checked(op, host->call(host->find_op(op), args, nargs, result, 1, 0));
}

int main(int argc, char** argv) {
  static const float x[] = {1, 2, 3, -1, 0, 1}, w[] = {1, 0, -1, 0.5f, 0.5f, 0.5f}, b[] = {0, 1};
  const char* const* folders = (const char* const*)(argv + 1);
  RbValue linear[3], softmax[2] = {{RB_NONE, 0, {0}}, {RB_INT, 0, {-1}}}, result;
  int i;
  host = rabbet_host();
  if (checked("rabbet_start", rabbet_start(folders, argc - 1)) ||
      checked("find_backend", host->find_backend("cpu", &cpu)))
    return 1;
  linear[0] = tensor(2, 3, x);
  linear[1] = tensor(2, 3, w);
  linear[2] = tensor(0, 2, b);
  if (call("linear", linear, 3, &softmax[0]) || call("softmax", softmax, 2, &result)) return 1;
  for (i = 0; i < 2; ++i) {
    const float* row = (const float*)result.v.t->data + 2 * i;
    printf("%.6f %.6f\n", row[0], row[1]);
  }
  for (i = 0; i < 3; ++i) host->value_release(&linear[i]);
  host->value_release(&softmax[0]);
  host->value_release(&result);
  return 0;
}
