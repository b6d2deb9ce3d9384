/* Counting gallery rows above, level with and near the best positive of every query, with 8-bit products as a screen.

   docs/exactness.md explains tile, bound and recheck. In short: a row x of the grid is written as s r + e, with r of
   8-bit integers and s a scale that 192 rows share. The integer product A of two such rows is exact, and

       | <x, y> - s_x s_y A |  <=  |s_x r_x| |e_y| + |e_x| |y|.

   So for each query two integer thresholds decide most pairs from A alone. A pair between the thresholds is decided by
   the exact inner product of the int32 grid rows in double, which no order of summation can change.

   Words: a superblock is 192 rows with one scale; a panel is 6 (left) or 64 (right) rows packed for the kernel. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SUPERBLOCK 192
#define LEFT 6
#define RIGHT 64

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_KERNEL 1
#include <immintrin.h>
#include <math.h>
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

/* 6 x 64 products of `words` groups of four coordinates:
   out[r][c] = row_start[r] + column_start[c] + sum of a[r] (signed) * b[c] (unsigned). Written as assembly because compilers spill the 24 accumulators; vpdpbusd does not saturate. */
#define ROW(offset, broadcast, c0, c1, c2, c3)                                                                         \
  "vpbroadcastd " #offset "(%[a]), %%zmm" #broadcast "\n\t"                                                            \
  "vpdpbusd %%zmm" #broadcast ", %%zmm0, %%zmm" #c0 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm1, %%zmm" #c1 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm2, %%zmm" #c2 "\n\t"                                                             \
  "vpdpbusd %%zmm" #broadcast ", %%zmm3, %%zmm" #c3 "\n\t"
#define START(offset, c0, c1, c2, c3)                                                                                  \
  "vpbroadcastd " #offset "(%[rows]), %%zmm4\n\t"                                                                      \
  "vpaddd 0(%[columns]), %%zmm4, %%zmm" #c0 "\n\t"                                                                     \
  "vpaddd 64(%[columns]), %%zmm4, %%zmm" #c1 "\n\t"                                                                    \
  "vpaddd 128(%[columns]), %%zmm4, %%zmm" #c2 "\n\t"                                                                   \
  "vpaddd 192(%[columns]), %%zmm4, %%zmm" #c3 "\n\t"
#define STORE(offset, c) "vmovdqa64 %%zmm" #c ", " #offset "(%[out])\n\t"

TARGET static inline void kernel(const int8_t *a, const uint8_t *b, int64_t words, const int32_t *row_start,
                                 const int32_t *column_start, int32_t *out) {
  __asm__ volatile(
      START(0, 8, 9, 10, 11) START(4, 12, 13, 14, 15) START(8, 16, 17, 18, 19)
      START(12, 20, 21, 22, 23) START(16, 24, 25, 26, 27) START(20, 28, 29, 30, 31)
      "1:\n\t"
      "vmovdqa64 0(%[b]), %%zmm0\n\t"
      "vmovdqa64 64(%[b]), %%zmm1\n\t"
      "vmovdqa64 128(%[b]), %%zmm2\n\t"
      "vmovdqa64 192(%[b]), %%zmm3\n\t"
      ROW(0, 4, 8, 9, 10, 11) ROW(4, 5, 12, 13, 14, 15) ROW(8, 6, 16, 17, 18, 19)
      ROW(12, 7, 20, 21, 22, 23) ROW(16, 4, 24, 25, 26, 27) ROW(20, 5, 28, 29, 30, 31)
      "add $24, %[a]\n\t"
      "add $256, %[b]\n\t"
      "dec %[words]\n\t"
      "jnz 1b\n\t"
      STORE(0, 8) STORE(64, 9) STORE(128, 10) STORE(192, 11)
      STORE(256, 12) STORE(320, 13) STORE(384, 14) STORE(448, 15)
      STORE(512, 16) STORE(576, 17) STORE(640, 18) STORE(704, 19)
      STORE(768, 20) STORE(832, 21) STORE(896, 22) STORE(960, 23)
      STORE(1024, 24) STORE(1088, 25) STORE(1152, 26) STORE(1216, 27)
      STORE(1280, 28) STORE(1344, 29) STORE(1408, 30) STORE(1472, 31)
      : [a] "+r"(a), [b] "+r"(b), [words] "+r"(words)
      : [rows] "r"(row_start), [columns] "r"(column_start), [out] "r"(out)
      : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10",
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22",
        "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31");
}

/* The exact inner product of two grid rows: products below 2**52 and sums below 2**53 are exact in double. */
TARGET static double exact_product(const int32_t *x, const int32_t *y, int64_t d) {
  __m512d s0 = _mm512_setzero_pd(), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
#define PART(o) _mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(x + i + o))),                                  \
                _mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i *)(y + i + o)))
  for (; i + 32 <= d; i += 32) {
    s0 = _mm512_fmadd_pd(PART(0), s0);
    s1 = _mm512_fmadd_pd(PART(8), s1);
    s2 = _mm512_fmadd_pd(PART(16), s2);
    s3 = _mm512_fmadd_pd(PART(24), s3);
  }
  double sum = _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(s0, s1), _mm512_add_pd(s2, s3)));
  for (; i < d; i++) sum += (double)x[i] * (double)y[i];
  return sum;
}

/* Quantise and pack one row, given in units of the longest possible row. `slack` bounds how far it is from the exact
   row (or from its exact image under a rotation). */
TARGET static void quantise_row(const float *x, int64_t d, int64_t words, double scale, double slack, int64_t place,
                                int8_t *left, uint8_t *right, int32_t *offset, double *head, double *tail) {
  int32_t sum = 0, squares = 0;
  double error = 0;
  uint8_t *l = (uint8_t *)left + (place / LEFT) * words * 4 * LEFT + (place % LEFT) * 4;
  uint8_t *r = right + (place / RIGHT) * words * 4 * RIGHT + (place % RIGHT) * 4;
  const double inverse = 1.0 / scale;
  for (int64_t w = 0; w < words; w++) {
    for (int64_t k = 0; k < 4; k++) {
      const int64_t i = 4 * w + k;
      const double value = i < d ? (double)x[i] : 0.0;
      double rounded = rint(value * inverse);
      rounded = rounded > 127 ? 127 : rounded < -127 ? -127 : rounded;
      const int32_t q = (int32_t)rounded;
      const double rest = value - scale * rounded;
      error += rest * rest;
      sum += q;
      squares += q * q;
      l[w * 4 * LEFT + k] = (uint8_t)(int8_t)q;
      r[w * 4 * RIGHT + k] = (uint8_t)(q + 128);
    }
  }
  /* The right side is shifted by 128 to be unsigned: take 128 * sum(left) off every product. */
  offset[place] = -128 * sum;
  /* Double sums of up to 2**16 squares err by less than 2**-36 of themselves; 2**-30 covers roots and products too. */
  head[place] = scale * sqrt((double)squares) * (1 + 0x1p-30);
  tail[place] = sqrt(error) * (1 + 0x1p-30) + slack + 0x1p-50;
}

typedef struct {
  int64_t n, superblocks;
  const int8_t *left;
  const uint8_t *right;
  const int32_t *offset, *grid;     /* grid: rows in their original order */
  const int64_t *order;             /* place -> original row */
  const double *head, *tail;        /* |s r| and |e| of each place, rounded up */
  const double *scale, *most_tail;  /* of each superblock */
  const double *longest;            /* of each superblock: the longest row */
  const double *best;               /* of each place: the best positive in units, +inf for none */
  const double *bias;               /* of each place: <centre, x - centre> in units */
} side_t;

typedef struct {
  side_t query, gallery;
  int64_t words, d;
  double near_steps, near_units, steps; /* a unit is `steps` grid steps of similarity */
  double centre;                        /* <centre, centre> in units */
  int64_t *far_above, *above, *level, *near_below; /* by original query row */
  int64_t rechecked;
} task_t;

typedef struct {
  int32_t low[SUPERBLOCK] __attribute__((aligned(64)));
  int32_t high[SUPERBLOCK] __attribute__((aligned(64)));
  int32_t start[SUPERBLOCK] __attribute__((aligned(64))); /* the bias in steps of the product */
} thresholds_t;

/* How far a product of two 8-bit rows, in units, may be from the exact one. */
static inline double error_bound(const side_t *q, const side_t *g, int64_t place, int64_t other) {
  return (q->head[place] * g->most_tail[other] + q->tail[place] * g->longest[other]) * (1 + 0x1p-40) + 0x1p-48;
}

/* Integer thresholds of one superblock of queries against one of the gallery: above `high` a product is surely more
   than a near-tie above the best positive, at or below `low` surely more than a near-tie below. The quotients are far
   below 2**31, so their rounding is below 1e-6, and each of the two biases is rounded to a whole step: two steps of
   slack cover all of it. */
static void set_thresholds(const task_t *t, const side_t *q, const side_t *g, int64_t block, int64_t other,
                           thresholds_t *out) {
  const double unit = q->scale[block] * g->scale[other];
  for (int64_t k = 0; k < SUPERBLOCK; k++) {
    const int64_t place = block * SUPERBLOCK + k;
    out->low[k] = out->high[k] = INT32_MAX; /* nobody: no product is above it */
    out->start[k] = place < q->n ? (int32_t)rint(q->bias[place] / unit) : 0;
    if (place >= q->n || isinf(q->best[place])) continue;
    const double bound = error_bound(q, g, place, other) + t->near_units, best = q->best[place] - t->centre;
    const double low = floor((best - bound) / unit) - 2, high = ceil((best + bound) / unit) + 2;
    out->low[k] = low < INT32_MIN ? INT32_MIN : low > INT32_MAX ? INT32_MAX : (int32_t)low;
    out->high[k] = high < INT32_MIN ? INT32_MIN : high > INT32_MAX ? INT32_MAX : (int32_t)high;
  }
}

/* Decide one pair that the thresholds left open, for the query `place` of `q`. Where rows are so alike that the bound
   is narrower than a near-tie, the product may still say on which side of the best positive the pair is. */
static void decide(task_t *t, const side_t *q, const side_t *g, int64_t place, int64_t other, int32_t product) {
  const int64_t row = q->order[place], block = place / SUPERBLOCK, other_block = other / SUPERBLOCK;
  const double unit = q->scale[block] * g->scale[other_block];
  const double bound = error_bound(q, g, place, other_block) + 2 * unit;
  double gap = (double)product * unit + t->centre - q->best[place];
  if (fabs(gap) <= bound || fabs(fabs(gap) - t->near_units) <= bound) {
    const double exact = exact_product(q->grid + row * t->d, g->grid + g->order[other] * t->d, t->d);
    gap = exact - q->best[place] * t->steps; /* both whole numbers below 2**53 */
    t->rechecked++;
    t->level[row] += gap == 0;
    t->far_above[row] += gap > t->near_steps;
    t->near_below[row] += gap < 0 && gap >= -t->near_steps;
  } else {
    t->far_above[row] += gap > t->near_units;
    t->near_below[row] += gap < 0 && gap > -t->near_units;
  }
  t->above[row] += gap > 0;
}

#define AT_LEAST(v, threshold) ((uint64_t)_mm512_cmpgt_epi32_mask(product[v], threshold) << (16 * (v)))

/* One kernel call: 6 queries against 64 gallery rows; with `symmetric`, these 64 are queries against the 6 as well. */
TARGET static void count_panel(task_t *t, int64_t left, int64_t right, const thresholds_t *rows,
                               const thresholds_t *columns, int symmetric) {
  int32_t out[LEFT * RIGHT] __attribute__((aligned(64)));
  const side_t *q = &t->query, *g = &t->gallery;
  const int64_t first = left * LEFT, other = right * RIGHT, rest = g->n - other;
  int32_t row_start[LEFT];
  for (int r = 0; r < LEFT; r++) row_start[r] = q->offset[first + r] + rows->start[(first + r) % SUPERBLOCK];
  kernel(q->left + left * t->words * 4 * LEFT, g->right + right * t->words * 4 * RIGHT, t->words, row_start,
         columns->start + other % SUPERBLOCK, out);
  const uint64_t valid = rest >= 64 ? ~0ull : (1ull << rest) - 1;
  for (int r = 0; r < LEFT && first + r < q->n; r++) {
    __m512i product[4];
    for (int v = 0; v < 4; v++) product[v] = _mm512_load_si512(out + r * RIGHT + v * 16);
    const int64_t place = first + r;
    const __m512i low = _mm512_set1_epi32(rows->low[place % SUPERBLOCK]);
    uint64_t open = (AT_LEAST(0, low) | AT_LEAST(1, low) | AT_LEAST(2, low) | AT_LEAST(3, low)) & valid;
    if (open) {
      const __m512i high = _mm512_set1_epi32(rows->high[place % SUPERBLOCK]);
      const uint64_t sure = (AT_LEAST(0, high) | AT_LEAST(1, high) | AT_LEAST(2, high) | AT_LEAST(3, high)) & valid;
      const int64_t hits = __builtin_popcountll(sure);
      t->far_above[q->order[place]] += hits;
      t->above[q->order[place]] += hits;
      for (open &= ~sure; open; open &= open - 1) {
        const int c = __builtin_ctzll(open);
        decide(t, q, g, place, other + c, out[r * RIGHT + c]);
      }
    }
    if (!symmetric) continue;
    const int32_t *lows = columns->low + other % SUPERBLOCK, *highs = columns->high + other % SUPERBLOCK;
#define COLUMN(v, from) AT_LEAST(v, _mm512_load_si512((from) + 16 * (v)))
    open = (COLUMN(0, lows) | COLUMN(1, lows) | COLUMN(2, lows) | COLUMN(3, lows)) & valid;
    if (open) {
      uint64_t sure = (COLUMN(0, highs) | COLUMN(1, highs) | COLUMN(2, highs) | COLUMN(3, highs)) & valid;
      open &= ~sure;
      for (; sure; sure &= sure - 1) {
        const int64_t row = g->order[other + __builtin_ctzll(sure)];
        t->far_above[row]++;
        t->above[row]++;
      }
      for (; open; open &= open - 1) {
        const int c = __builtin_ctzll(open);
        decide(t, g, q, other + c, place, out[r * RIGHT + c]);
      }
    }
  }
}

/* The superblocks `from` to `to` of the queries against the gallery superblocks `first` to `last`. A right panel
   stays in the cache while the left panels of several superblocks pass by. With `symmetric` the sets are one, only
   superblocks on and above the diagonal are looked at, and those above it count for both sides. */
static void count_superblocks(task_t *t, int64_t from, int64_t to, int64_t first, int64_t last, int symmetric,
                              thresholds_t *rows, thresholds_t *columns) {
  for (int64_t other = symmetric && first < from ? from : first; other < last; other++) {
    const int64_t end = symmetric && other + 1 < to ? other + 1 : to;
    for (int64_t block = from; block < end; block++) {
      set_thresholds(t, &t->query, &t->gallery, block, other, rows + block - from);
      set_thresholds(t, &t->gallery, &t->query, other, block, columns + block - from);
    }
    for (int64_t right = other * 3; right < other * 3 + 3 && right * RIGHT < t->gallery.n; right++)
      for (int64_t block = from; block < end; block++)
        for (int64_t left = block * 32; left < block * 32 + 32 && left * LEFT < t->query.n; left++)
          count_panel(t, left, right, rows + block - from, columns + block - from, symmetric && block < other);
  }
}
#endif

/* ---- Python ---- */

static PyObject *supported(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
#ifdef HAVE_KERNEL
  __builtin_cpu_init();
  return PyBool_FromLong(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512vnni"));
#else
  return PyBool_FromLong(0);
#endif
}

#ifdef HAVE_KERNEL
#define MISFIT "the buffers do not fit each other"

/* products(left, right, words) -> bytes: the kernel alone, for the self-test. */
static PyObject *products(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer left, right, starts, columns;
  Py_ssize_t words;
  if (!PyArg_ParseTuple(args, "y*y*y*y*n", &left, &right, &starts, &columns, &words)) return NULL;
  int32_t out[LEFT * RIGHT] __attribute__((aligned(64)));
  PyObject *result = NULL;
  if (words < 1 || left.len / (4 * LEFT) < words || right.len / (4 * RIGHT) < words || starts.len < 4 * LEFT ||
      columns.len < 4 * RIGHT || (uintptr_t)right.buf % 64 || (uintptr_t)columns.buf % 64)
    PyErr_SetString(PyExc_ValueError, MISFIT);
  else {
    kernel(left.buf, right.buf, words, starts.buf, columns.buf, out);
    result = PyBytes_FromStringAndSize((const char *)out, sizeof out);
  }
  PyBuffer_Release(&left), PyBuffer_Release(&right), PyBuffer_Release(&starts), PyBuffer_Release(&columns);
  return result;
}

/* pack(rows, d, words, first, scale, slack, left, right, offset, head, tail): quantise rows into their places. */
static PyObject *pack(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer rows, scale, left, right, offset, head, tail;
  Py_ssize_t d, words, first;
  double slack;
  if (!PyArg_ParseTuple(args, "y*nnny*dw*w*w*w*w*", &rows, &d, &words, &first, &scale, &slack, &left, &right, &offset,
                        &head, &tail))
    return NULL;
  PyObject *result = NULL;
  const int64_t n = d > 0 ? rows.len / (4 * d) : 0, end = first + n;
  if (d < 1 || words < (d + 3) / 4 || first < 0 || scale.len / 8 < (end + SUPERBLOCK - 1) / SUPERBLOCK ||
      left.len / (4 * LEFT) / words < (end + LEFT - 1) / LEFT ||
      right.len / (4 * RIGHT) / words < (end + RIGHT - 1) / RIGHT || offset.len / 4 < end || head.len / 8 < end ||
      tail.len / 8 < end)
    PyErr_SetString(PyExc_ValueError, MISFIT);
  else {
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n; i++)
      quantise_row((const float *)rows.buf + i * d, d, words, ((const double *)scale.buf)[(first + i) / SUPERBLOCK],
                   slack, first + i, left.buf, right.buf, offset.buf, head.buf, tail.buf);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
  }
  PyBuffer_Release(&rows), PyBuffer_Release(&scale), PyBuffer_Release(&left), PyBuffer_Release(&right);
  PyBuffer_Release(&offset), PyBuffer_Release(&head), PyBuffer_Release(&tail);
  return result;
}

/* Whether every one of the row numbers is that of a row. */
static int all_within(const Py_buffer *numbers, int64_t rows) {
  const int64_t n = numbers->len / 8, *number = numbers->buf;
  for (int64_t i = 0; i < n; i++)
    if (number[i] < 0 || number[i] >= rows) return 0;
  return 1;
}

/* pair_products(x, y, owners, rows, d, out): exact products of pairs of grid rows. */
static PyObject *pair_products(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer x, y, owners, rows, out;
  Py_ssize_t d;
  if (!PyArg_ParseTuple(args, "y*y*y*y*nw*", &x, &y, &owners, &rows, &d, &out)) return NULL;
  PyObject *result = NULL;
  const int64_t n = owners.len / 8, *a = owners.buf, *b = rows.buf;
  if (d < 1 || rows.len != owners.len || out.len / 8 < n || !all_within(&owners, x.len / (4 * d)) ||
      !all_within(&rows, y.len / (4 * d)))
    PyErr_SetString(PyExc_ValueError, MISFIT);
  else {
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n; i++)
      ((double *)out.buf)[i] = exact_product((const int32_t *)x.buf + a[i] * d, (const int32_t *)y.buf + b[i] * d, d);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
  }
  PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&owners), PyBuffer_Release(&rows);
  PyBuffer_Release(&out);
  return result;
}

#define SIDE_BUFFERS 12
#define AT_ONCE 8

static int read_side(PyObject *tuple, side_t *side, Py_buffer *buffers) {
  PyObject *items[SIDE_BUFFERS];
  Py_ssize_t n;
  if (!PyArg_ParseTuple(tuple, "nOOOOOOOOOOOO", &n, &items[0], &items[1], &items[2], &items[3], &items[4], &items[5],
                        &items[6], &items[7], &items[8], &items[9], &items[10], &items[11]))
    return 0;
  for (int i = 0; i < SIDE_BUFFERS; i++)
    if (PyObject_GetBuffer(items[i], &buffers[i], PyBUF_C_CONTIGUOUS)) {
      while (i--) PyBuffer_Release(&buffers[i]);
      return 0;
    }
  *side = (side_t){n,
                   (n + SUPERBLOCK - 1) / SUPERBLOCK,
                   buffers[0].buf,
                   buffers[1].buf,
                   buffers[2].buf,
                   buffers[3].buf,
                   buffers[4].buf,
                   buffers[5].buf,
                   buffers[6].buf,
                   buffers[7].buf,
                   buffers[8].buf,
                   buffers[9].buf,
                   buffers[10].buf,
                   buffers[11].buf};
  return 1;
}

/* Whether the buffers of a side are as long as its rows and their width want; in the order of side_t. */
static int side_fits(const side_t *side, const Py_buffer *b, int64_t words, int64_t d) {
  const int64_t places = side->superblocks * SUPERBLOCK;
  const int64_t wanted[SIDE_BUFFERS] = {places * words * 4, places * words * 4, places * 4, 0, side->n * 8, places * 8,
                                        places * 8, side->superblocks * 8, side->superblocks * 8,
                                        side->superblocks * 8, places * 8, places * 8};
  if (side->n < 0 || side->n > INT64_MAX / 4 / (words * 4)) return 0;
  for (int i = 0; i < SIDE_BUFFERS; i++)
    if (b[i].len < wanted[i]) return 0;
  return (uintptr_t)b[0].buf % 4 == 0 && (uintptr_t)b[1].buf % 64 == 0 && b[4].len == side->n * 8 &&
         all_within(&b[4], b[3].len / (4 * d));
}

static void release(Py_buffer *buffers) {
  for (int i = 0; i < SIDE_BUFFERS; i++) PyBuffer_Release(&buffers[i]);
}

/* count(query, gallery, words, d, near_steps, steps, centre, from, to, first, last, symmetric, far, above, level, near) */
static PyObject *count(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *query, *gallery;
  Py_ssize_t words, d, from, to, first, last;
  double near_steps, steps, centre;
  int symmetric;
  Py_buffer counts[4], query_buffers[SIDE_BUFFERS], gallery_buffers[SIDE_BUFFERS];
  task_t task;
  if (!PyArg_ParseTuple(args, "OOnndddnnnnpw*w*w*w*", &query, &gallery, &words, &d, &near_steps, &steps, &centre, &from, &to,
                        &first, &last, &symmetric, &counts[0], &counts[1], &counts[2], &counts[3]))
    return NULL;
  PyObject *result = NULL;
  if (read_side(query, &task.query, query_buffers)) {
    if (read_side(gallery, &task.gallery, gallery_buffers)) {
      int fits = d > 0 && words >= (d + 3) / 4 && words < INT32_MAX && side_fits(&task.query, query_buffers, words, d) &&
                 side_fits(&task.gallery, gallery_buffers, words, d) && from >= 0 && from <= to &&
                 to <= task.query.superblocks && to - from <= AT_ONCE && first >= 0 && last <= task.gallery.superblocks &&
                 (!symmetric || task.query.left == task.gallery.left);
      for (int i = 0; i < 4; i++) fits = fits && counts[i].len / 8 >= query_buffers[3].len / (4 * d);
      if (!fits) {
        PyErr_SetString(PyExc_ValueError, MISFIT);
        release(gallery_buffers), release(query_buffers);
        for (int i = 0; i < 4; i++) PyBuffer_Release(&counts[i]);
        return NULL;
      }
      task.words = words, task.d = d, task.rechecked = 0;
      task.near_steps = near_steps, task.near_units = near_steps / steps, task.steps = steps, task.centre = centre;
      task.far_above = counts[0].buf, task.above = counts[1].buf;
      task.level = counts[2].buf, task.near_below = counts[3].buf;
      Py_BEGIN_ALLOW_THREADS
      thresholds_t rows[AT_ONCE], columns[AT_ONCE];
      count_superblocks(&task, from, to, first, last, symmetric, rows, columns);
      Py_END_ALLOW_THREADS
      result = PyLong_FromLongLong(task.rechecked);
      release(gallery_buffers);
    }
    release(query_buffers);
  }
  for (int i = 0; i < 4; i++) PyBuffer_Release(&counts[i]);
  return result;
}
#endif

static PyMethodDef methods[] = {
    {"supported", supported, METH_NOARGS, "Whether this processor has the instructions that the kernel needs."},
#ifdef HAVE_KERNEL
    {"products", products, METH_VARARGS, "The kernel alone: 6 x 64 products."},
    {"pack", pack, METH_VARARGS, "Quantise rows and pack them for the kernel."},
    {"pair_products", pair_products, METH_VARARGS, "Exact products of pairs of grid rows."},
    {"count", count, METH_VARARGS, "Count gallery rows against the best positives of queries."},
#endif
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Counting with 8-bit products; see recallatk.ranking.native.", -1, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
