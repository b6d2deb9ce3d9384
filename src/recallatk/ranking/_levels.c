/* Sorting similarities into bins between the levels of queries; docs/exactness.md, "All positives", explains the bound.

   A tile holds float32 products of some queries and some gallery rows. A product that is further than its error from
   every threshold of its query is in the bin between two of them; any other pair is decided by the exact inner product
   of the int32 grid rows in double, which no order of summation can change.

   Plain C: no instruction is required. Where GCC or Clang meet x86, the same loops are compiled for wider registers as
   well, and chosen at run time. A NaN is a pair that does not count: no comparison with it holds. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <math.h>
#include <stdint.h>

#define CHUNK 64   /* products that are looked at together where few of them count */
#define TURNED 16  /* columns that are turned into rows together, */
#define TURNED_ROWS 512 /* so many products of each */
#define LANES 16   /* partial sums of an exact product */
#define FEW 64     /* thresholds that are compared with a product one by one */
#define SEARCH 256 /* looking up a product takes as long as comparing so many with one number */

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

typedef struct {
  const float *product; /* rows x columns */
  int64_t rows, columns;
  int by_column;             /* whether the columns are the queries, and the rows what they are compared with */
  const float *low;          /* of each query: what is below it counts nowhere */
  const int64_t *starts;     /* where the thresholds of each query begin */
  const double *threshold;   /* rising for each query, in grid steps of similarity */
  const float *lower, *upper; /* a product below `lower` is surely below the threshold, one above `upper` above it */
  const int32_t *query, *other; /* grid rows of the queries, and of what they are compared with */
  int64_t d;
  int64_t *above; /* of each query one more than it has thresholds: products above so many of them */
  int64_t *level; /* of each threshold: products exactly at it */
  int64_t exact;  /* how many pairs needed their exact product */
} tile_t;

/* Products below 2**52 and sums below 2**53 are whole numbers, exact in double in any order. */
INLINE double exact_product(const int32_t *x, const int32_t *y, int64_t d) {
  double sums[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= d; i += LANES)
    for (int k = 0; k < LANES; k++) sums[k] += (double)x[i + k] * (double)y[i + k];
  for (; i < d; i++) sum += (double)x[i] * (double)y[i];
  for (int k = 0; k < LANES; k++) sum += sums[k];
  return sum;
}

INLINE int64_t count_at_least(const float *product, int64_t n, float least) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; i++) count += product[i] >= least;
  return count;
}

INLINE int64_t count_above(const float *product, int64_t n, float most) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; i++) count += product[i] > most;
  return count;
}

/* How many of n rising numbers are below a product: halving first, and where few are left all of them at once. */
INLINE int64_t count_below(const float *rising, int64_t n, float product) {
  const float *at = rising;
  for (int64_t half; n > FEW; n -= half) {
    half = n / 2;
    at += at[half - 1] < product ? half : 0;
  }
  int32_t count = 0;
  for (int64_t i = 0; i < n; i++) count += at[i] < product;
  return at - rising + count;
}

INLINE void put_one(tile_t *t, int64_t query, int64_t other, float product) {
  const int64_t first = t->starts[query], n = t->starts[query + 1] - first;
  int64_t below = count_below(t->upper + first, n, product);
  if (below < n && t->lower[first + below] <= product) {
    const double *threshold = t->threshold + first;
    const double similarity = exact_product(t->query + query * t->d, t->other + other * t->d, t->d);
    while (below < n && threshold[below] < similarity) below++;
    if (below < n && threshold[below] == similarity) t->level[first + below]++;
    t->exact++;
  }
  t->above[first + query + below]++; /* the bins of a query begin at `first`, and one more for each query before it */
}

/* Look up the products of a query from `lower` to `upper`, one by one. */
INLINE void put_each(tile_t *t, int64_t query, int64_t other, const float *product, int64_t n, float lower,
                     float upper) {
  for (int64_t start = 0; start < n; start += CHUNK) {
    const float *part = product + start;
    const int32_t size = n - start < CHUNK ? (int32_t)(n - start) : CHUNK;
    int32_t any = 0;
    for (int32_t k = 0; k < size; k++) any |= (part[k] >= lower) & (part[k] <= upper);
    if (!any) continue;
    int32_t found[CHUNK], n_found = 0;
    for (int32_t k = 0; k < size; k++) {
      found[n_found] = k; /* overwritten unless it is one of them */
      n_found += (part[k] >= lower) & (part[k] <= upper);
    }
    for (int32_t i = 0; i < n_found; i++) put_one(t, query, other + start + found[i], part[found[i]]);
  }
}

/* All products of a query at once, by comparing them with one threshold after the other: between `upper` of one and
   `lower` of the next they are only counted. Thresholds that are closer than the error are one zone. What is below the
   threshold `from` is not counted: no level asks for it. */
INLINE void put_together(tile_t *t, int64_t query, int64_t other, const float *product, int64_t n, int64_t from) {
  const int64_t end = t->starts[query + 1];
  int64_t *bin = t->above + query, above = 0;
  for (int64_t k = from; k < end; k++) {
    const int64_t zone = k;
    while (k + 1 < end && t->lower[k + 1] <= t->upper[k]) k++;
    const int64_t reach = count_at_least(product, n, t->lower[zone]);
    if (zone > from) bin[zone] += above - reach;
    above = count_above(product, n, t->upper[k]);
    if (reach > above) put_each(t, query, other, product, n, t->lower[zone], t->upper[k]);
  }
  bin[end] += above;
}

/* The products of a query with n gallery rows, the first of them `other`. */
INLINE void put_query(tile_t *t, int64_t query, int64_t other, const float *product, int64_t n) {
  const float low = t->low[query];
  const int64_t count = count_at_least(product, n, low), end = t->starts[query + 1];
  if (!count) return;
  int64_t from = t->starts[query];
  while (from < end && t->upper[from] < low) from++; /* levels that are beyond the limit of the query */
  if (count * SEARCH > 2 * (end - from) * n)
    put_together(t, query, other, product, n, from);
  else
    put_each(t, query, other, product, n, low, INFINITY);
}

INLINE void put_tile(tile_t *t) {
  if (!t->by_column) {
    for (int64_t row = 0; row < t->rows; row++) put_query(t, row, 0, t->product + row * t->columns, t->columns);
    return;
  }
  float turned[TURNED][TURNED_ROWS];
  for (int64_t column = 0; column < t->columns; column += TURNED) {
    const int64_t width = t->columns - column < TURNED ? t->columns - column : TURNED;
    for (int64_t first = 0; first < t->rows; first += TURNED_ROWS) {
      const int64_t height = t->rows - first < TURNED_ROWS ? t->rows - first : TURNED_ROWS;
      for (int64_t row = 0; row < height; row++)
        for (int64_t k = 0; k < width; k++) turned[k][row] = t->product[(first + row) * t->columns + column + k];
      for (int64_t k = 0; k < width; k++) put_query(t, column + k, first, turned[k], height);
    }
  }
}

static void put_tile_anywhere(tile_t *t) { put_tile(t); }

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2,fma"))) static void put_tile_256(tile_t *t) { put_tile(t); }
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))) static void put_tile_512(
    tile_t *t) {
  put_tile(t);
}

static void (*choose(void))(tile_t *) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return put_tile_512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? put_tile_256 : put_tile_anywhere;
}
#else
static void (*choose(void))(tile_t *) { return put_tile_anywhere; }
#endif

/* ---- Python ---- */

enum { PRODUCT, LOW, STARTS, THRESHOLD, LOWER, UPPER, QUERY, OTHER, ABOVE, LEVEL, BUFFERS };

/* Whether every buffer is as long as the tile and its thresholds want, so that nothing is read or written beyond. */
static int fits(const tile_t *t, const Py_buffer *b) {
  if (t->rows < 0 || t->columns < 1 || t->d < 1 || t->rows > INT32_MAX || t->columns > INT32_MAX ||
      t->d > INT32_MAX)
    return 0;
  for (int i = 0; i < BUFFERS; i++)
    if ((uintptr_t)b[i].buf % (i == STARTS || i == THRESHOLD || i == ABOVE || i == LEVEL ? 8 : 4)) return 0;
  const int64_t queries = t->by_column ? t->columns : t->rows, others = t->by_column ? t->rows : t->columns;
  const int64_t thresholds = b[THRESHOLD].len / 8;
  if (b[PRODUCT].len != 4 * t->rows * t->columns || b[LOW].len != 4 * queries || b[STARTS].len != 8 * (queries + 1) ||
      b[LOWER].len != 4 * thresholds || b[UPPER].len != 4 * thresholds ||
      b[QUERY].len / 4 / t->d < queries || b[OTHER].len / 4 / t->d < others ||
      b[ABOVE].len / 8 != thresholds + queries || b[LEVEL].len / 8 != thresholds || t->starts[0] != 0 ||
      t->starts[queries] != thresholds)
    return 0;
  for (int64_t q = 0; q < queries; q++)
    if (t->starts[q] > t->starts[q + 1]) return 0;
  return 1;
}

/* add_tile(product, low, starts, thresholds, lower, upper, queries, others, above, level, rows, columns, by_column, d) */
static PyObject *add_tile(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer b[BUFFERS];
  Py_ssize_t rows, columns, d;
  int by_column;
  if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*w*w*nnpn", &b[PRODUCT], &b[LOW], &b[STARTS], &b[THRESHOLD],
                        &b[LOWER], &b[UPPER], &b[QUERY], &b[OTHER], &b[ABOVE], &b[LEVEL], &rows, &columns, &by_column,
                        &d))
    return NULL;
  PyObject *result = NULL;
  tile_t tile = {.product = b[PRODUCT].buf,
                 .rows = rows,
                 .columns = columns,
                 .by_column = by_column,
                 .low = b[LOW].buf,
                 .starts = b[STARTS].buf,
                 .threshold = b[THRESHOLD].buf,
                 .lower = b[LOWER].buf,
                 .upper = b[UPPER].buf,
                 .query = b[QUERY].buf,
                 .other = b[OTHER].buf,
                 .d = d,
                 .above = b[ABOVE].buf,
                 .level = b[LEVEL].buf};
  if (!fits(&tile, b))
    PyErr_SetString(PyExc_ValueError, "the buffers do not fit together");
  else {
    Py_BEGIN_ALLOW_THREADS
    choose()(&tile);
    Py_END_ALLOW_THREADS
    result = PyLong_FromLongLong(tile.exact);
  }
  for (int i = 0; i < BUFFERS; i++) PyBuffer_Release(&b[i]);
  return result;
}

static PyMethodDef methods[] = {
    {"add_tile", add_tile, METH_VARARGS, "Sort a tile of products into the bins of its queries."}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_levels", "Binning of similarities; see recallatk.ranking.bins.", -1, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__levels(void) { return PyModule_Create(&module); }
