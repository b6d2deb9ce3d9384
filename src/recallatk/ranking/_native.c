/* The Python module: every buffer is checked here before a loop sees it. What the loops do: _native.h. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_native.h"

static PyObject *supported(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
#ifdef HAVE_KERNEL
  __builtin_cpu_init();
  return PyBool_FromLong(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("popcnt") &&
                         __builtin_cpu_supports("bmi"));
#else
  return PyBool_FromLong(0);
#endif
}

#ifdef HAVE_KERNEL

/* ---- buffers ---- */

static PyObject *misfit(void) {
  PyErr_SetString(PyExc_ValueError, "the buffers do not fit each other");
  return NULL;
}

static void release(Py_buffer *buffers, int n) {
  for (int i = 0; i < n; i++) PyBuffer_Release(&buffers[i]);
}

/* Take `n` buffers out of a tuple; the last `written` of them are written to. */
static int take(PyObject *tuple, Py_buffer *buffers, int n, int written) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != n) {
    PyErr_Format(PyExc_TypeError, "a tuple of %d buffers is wanted", n);
    return 0;
  }
  for (int i = 0; i < n; i++) {
    const int flags = i < n - written ? PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
    if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), &buffers[i], flags)) {
      release(buffers, i);
      return 0;
    }
  }
  return 1;
}

/* Whether a buffer holds at least n items, of so many bytes each, and starts where such items may. */
static int holds(const Py_buffer *buffer, int64_t n, int64_t bytes, uintptr_t alignment) {
  return n >= 0 && buffer->len / bytes >= n && (uintptr_t)buffer->buf % alignment == 0;
}

/* Whether items `from` to `to` of the row numbers exist, and each is that of a row. */
static int all_within(const Py_buffer *numbers, int64_t from, int64_t to, int64_t rows) {
  const int64_t *number = numbers->buf;
  if (from < 0 || to < from || !holds(numbers, to, 8, 8)) return 0;
  for (int64_t i = from; i < to; i++)
    if (number[i] < 0 || number[i] >= rows) return 0;
  return 1;
}

static int64_t superblocks_of(int64_t n) { return (n + SUPERBLOCK - 1) / SUPERBLOCK; }

/* ---- products ---- */

/* products(left, right, row_start, column_start, words) -> bytes: the kernel alone, for the self-test. */
static PyObject *products(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer left, right, starts, columns;
  Py_ssize_t words;
  if (!PyArg_ParseTuple(args, "y*y*y*y*n", &left, &right, &starts, &columns, &words)) return NULL;
  int32_t out[LEFT * RIGHT] __attribute__((aligned(64)));
  PyObject *result = NULL;
  if (words < 1 || !holds(&left, words, 4 * LEFT, 1) || !holds(&right, words, 4 * RIGHT, 64) ||
      !holds(&starts, LEFT, 4, 4) || !holds(&columns, RIGHT, 4, 64))
    misfit();
  else {
    kernel_products(left.buf, right.buf, words, starts.buf, columns.buf, out);
    result = PyBytes_FromStringAndSize((const char *)out, sizeof out);
  }
  PyBuffer_Release(&left), PyBuffer_Release(&right), PyBuffer_Release(&starts), PyBuffer_Release(&columns);
  return result;
}

/* pair_products(x, y, owners, rows, d, out): exact products of pairs of grid rows. */
static PyObject *pair_products(PyObject *self, PyObject *args) {
  (void)self;
  Py_buffer x, y, owners, rows, out;
  Py_ssize_t d;
  if (!PyArg_ParseTuple(args, "y*y*y*y*nw*", &x, &y, &owners, &rows, &d, &out)) return NULL;
  PyObject *result = NULL;
  const int64_t n = owners.len / 8, *a = owners.buf, *b = rows.buf;
  if (d < 1 || rows.len != owners.len || !holds(&out, n, 8, 8) || !all_within(&owners, 0, n, x.len / 4 / d) ||
      !all_within(&rows, 0, n, y.len / 4 / d))
    misfit();
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

/* ---- packing ---- */

/* Whether origin and signs are empty or as wide as the rows, and rows `from` to `to` exist; sets the frame. */
static int read_frame(const Py_buffer *b, int64_t from, int64_t to, int64_t d, frame_t *frame) {
  enum { GRID, ROWS, ORIGIN, SIGNS };
  if (d < 1 || !holds(&b[GRID], 0, 4, 4) || !all_within(&b[ROWS], from, to, b[GRID].len / 4 / d)) return 0;
  if ((b[ORIGIN].len && !holds(&b[ORIGIN], d, 4, 4)) || (b[SIGNS].len && !holds(&b[SIGNS], d, 4, 4))) return 0;
  *frame = (frame_t){d, b[ORIGIN].len ? b[ORIGIN].buf : NULL, b[SIGNS].len ? b[SIGNS].buf : NULL};
  return 1;
}

/* measure((grid, rows, origin, signs, largest, length, common, smallest), from, to, d): see measures_t. */
static PyObject *measure(PyObject *self, PyObject *args) {
  (void)self;
  enum { GRID, ROWS, ORIGIN, SIGNS, LARGEST, LENGTH, COMMON, SMALLEST, BUFFERS };
  PyObject *tuple;
  Py_ssize_t from, to, d;
  Py_buffer b[BUFFERS];
  frame_t frame;
  if (!PyArg_ParseTuple(args, "Onnn", &tuple, &from, &to, &d) || !take(tuple, b, BUFFERS, 4)) return NULL;
  PyObject *result = NULL;
  if (!read_frame(b, from, to, d, &frame) || !holds(&b[LARGEST], to, 8, 8) || !holds(&b[LENGTH], to, 8, 8) ||
      !holds(&b[COMMON], to, 4, 4) || !holds(&b[SMALLEST], to, 4, 4))
    misfit();
  else {
    const measures_t out = {b[LARGEST].buf, b[LENGTH].buf, b[COMMON].buf, b[SMALLEST].buf};
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = measure_rows(b[GRID].buf, b[ROWS].buf, from, to, &frame, &out);
    Py_END_ALLOW_THREADS
    result = done ? Py_NewRef(Py_None) : PyErr_NoMemory();
  }
  release(b, BUFFERS);
  return result;
}

/* pack((grid, rows, origin, signs, scale, fine_scale, step, length, left, right, fine, offset, head, tail, fine_tail,
   bias), from, to, d): see packed_t; a side that is not wanted is empty. */
static PyObject *pack(PyObject *self, PyObject *args) {
  (void)self;
  enum { GRID, ROWS, ORIGIN, SIGNS, SCALE, FINE_SCALE, STEP, LENGTH };
  enum { SIDE_LEFT = LENGTH + 1, SIDE_RIGHT, FINE, OFFSET, HEAD, TAIL, FINE_TAIL, BIAS, BUFFERS };
  PyObject *tuple;
  Py_ssize_t from, to, d;
  Py_buffer b[BUFFERS];
  frame_t frame;
  if (!PyArg_ParseTuple(args, "Onnn", &tuple, &from, &to, &d) || !take(tuple, b, BUFFERS, 8)) return NULL;
  PyObject *result = NULL;
  int fits = read_frame(b, from, to, d, &frame);
  if (fits) {
    const int64_t blocks = superblocks_of(to), places = blocks * SUPERBLOCK, words = words_of(d);
    for (int i = SCALE; i < LENGTH; i++) fits = fits && holds(&b[i], blocks, 8, 8);
    for (int i = HEAD; i < BUFFERS; i++) fits = fits && holds(&b[i], to, 8, 8);
    fits = fits && holds(&b[LENGTH], to, 8, 8) && holds(&b[OFFSET], to, 4, 4) &&
           holds(&b[FINE], to, fine_width(d) * 2, 2) &&
           (!b[SIDE_LEFT].len || holds(&b[SIDE_LEFT], places, words * 4, 4)) &&
           (!b[SIDE_RIGHT].len || holds(&b[SIDE_RIGHT], places, words * 4, 4));
  }
  if (!fits)
    misfit();
  else {
    const packed_t out = {b[SCALE].buf, b[FINE_SCALE].buf, b[STEP].buf, b[LENGTH].buf,
                          b[SIDE_LEFT].len ? b[SIDE_LEFT].buf : NULL, b[SIDE_RIGHT].len ? b[SIDE_RIGHT].buf : NULL,
                          b[FINE].buf, b[OFFSET].buf, b[HEAD].buf, b[TAIL].buf, b[FINE_TAIL].buf, b[BIAS].buf};
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = pack_rows(b[GRID].buf, b[ROWS].buf, from, to, &frame, &out);
    Py_END_ALLOW_THREADS
    result = done ? Py_NewRef(Py_None) : PyErr_NoMemory();
  }
  release(b, BUFFERS);
  return result;
}

/* ---- counting ---- */

/* The buffers of a side: doubles from HEAD on, of each superblock from SCALE on. */
enum { GRID, ROW, SIDE_LEFT, SIDE_RIGHT, FINE, WEIGHT, PLAIN, OFFSET };
enum { HEAD = OFFSET + 1, TAIL, BEST, BIAS, SCALE, MOST_TAIL, LONGEST, FINE_SCALE, FINE_TAIL, STEP, BUFFERS };

/* Whether the buffers of a side are as long as its rows and their width want; sets the side. */
static int read_side(const Py_buffer *b, int64_t n, int64_t d, int needs_left, int needs_right, side_t *side) {
  if (d < 1 || d > INT32_MAX || n < 0 || n > INT64_MAX / 8 / (d + 64)) return 0;
  const int64_t blocks = superblocks_of(n), places = blocks * SUPERBLOCK, row = words_of(d) * 4;
  if ((needs_left && !holds(&b[SIDE_LEFT], places, row, 4)) ||
      (needs_right && !holds(&b[SIDE_RIGHT], places, row, 64)) || !holds(&b[GRID], 0, 4, 4) ||
      !all_within(&b[ROW], 0, n, b[GRID].len / 4 / d) ||
      !holds(&b[FINE], n, fine_width(d) * 2, 2) || !holds(&b[WEIGHT], places, 4, 4) ||
      !holds(&b[PLAIN], places / RIGHT, 1, 1) || !holds(&b[OFFSET], places, 4, 4))
    return 0;
  for (int i = HEAD; i < BUFFERS; i++)
    if (!holds(&b[i], i < SCALE ? places : blocks, 8, 8)) return 0;
  *side = (side_t){n, blocks, b[SIDE_LEFT].buf, b[SIDE_RIGHT].buf, b[FINE].buf, b[GRID].buf, b[ROW].buf, b[WEIGHT].buf,
                   b[PLAIN].buf, b[OFFSET].buf, b[HEAD].buf, b[TAIL].buf, b[BEST].buf, b[BIAS].buf, b[SCALE].buf,
                   b[MOST_TAIL].buf, b[LONGEST].buf, b[FINE_SCALE].buf, b[FINE_TAIL].buf, b[STEP].buf};
  return 1;
}

/* Four counts for each place, one kind after the other. */
static int read_counts(const Py_buffer *buffer, const side_t *side, counts_t *counts) {
  const int64_t places = side->superblocks * SUPERBLOCK;
  int64_t *first = buffer->buf;
  if (!holds(buffer, 4 * places, 8, 8)) return 0;
  *counts = (counts_t){first, first + places, first + 2 * places, first + 3 * places};
  return 1;
}

/* count(query, n, gallery, m, row_counts, column_counts, d, near, origin, from, to, triangle, both) -> pairs that took
   an exact product. `triangle`: query and gallery are one set, and so are their counts. */
static PyObject *count(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *query, *gallery;
  Py_ssize_t n, m, d, from, to;
  Py_buffer rows, columns, left[BUFFERS], right[BUFFERS];
  task_t t;
  if (!PyArg_ParseTuple(args, "OnOnw*w*nddnnpp", &query, &n, &gallery, &m, &rows, &columns, &d, &t.near_steps,
                        &t.origin, &from, &to, &t.triangle, &t.both))
    return NULL;
  PyObject *result = NULL;
  if (take(query, left, BUFFERS, 0)) {
    if (take(gallery, right, BUFFERS, 0)) {
      if (!read_side(left, n, d, 1, t.triangle, &t.query) || !read_side(right, m, d, 0, 1, &t.gallery) ||
          !read_counts(&rows, &t.query, &t.rows) || (t.both && !read_counts(&columns, &t.gallery, &t.columns)) ||
          from < 0 || from > to || to > t.query.superblocks || to - from > AT_ONCE ||
          (t.triangle && (n != m || t.query.right != t.gallery.right)))
        misfit();
      else {
        t.d = d, t.rechecked = 0;
        Py_BEGIN_ALLOW_THREADS
        count_superblocks(&t, from, to);
        Py_END_ALLOW_THREADS
        result = PyLong_FromLongLong(t.rechecked);
      }
      release(right, BUFFERS);
    }
    release(left, BUFFERS);
  }
  PyBuffer_Release(&rows), PyBuffer_Release(&columns);
  return result;
}

/* find(query, n, gallery, m, d, origin, from, to, right, triangle, owner, other, similarity) -> (pairs, next right panel):
   see find_pairs. Call again from there until there is no such panel. */
static PyObject *find(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *query, *gallery;
  Py_ssize_t n, m, d, from, to, right;
  Py_buffer owner, other, similarity, b[BUFFERS], c[BUFFERS];
  search_t s;
  if (!PyArg_ParseTuple(args, "OnOnndnnnpw*w*w*", &query, &n, &gallery, &m, &d, &s.origin, &from, &to, &right, &s.triangle,
                        &owner, &other, &similarity))
    return NULL;
  PyObject *result = NULL;
  if (take(query, b, BUFFERS, 0)) {
    if (take(gallery, c, BUFFERS, 0)) {
      s.room = owner.len / 8;
      if (!read_side(b, n, d, 1, s.triangle, &s.query) || !read_side(c, m, d, 0, 1, &s.gallery) || from < 0 ||
          from > to || to > s.query.superblocks || to - from > AT_ONCE || right < 0 ||
          s.room < 2 * RIGHT * SUPERBLOCK * (to - from) || !holds(&owner, s.room, 8, 8) || !holds(&other, s.room, 8, 8) ||
          !holds(&similarity, s.room, 8, 8) || (s.triangle && (n != m || s.query.right != s.gallery.right)))
        misfit();
      else {
        s.d = d, s.owner = owner.buf, s.other = other.buf, s.similarity = similarity.buf, s.n = 0;
        Py_BEGIN_ALLOW_THREADS
        right = find_pairs(&s, from, to, right);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(nn)", (Py_ssize_t)s.n, right);
      }
      release(c, BUFFERS);
    }
    release(b, BUFFERS);
  }
  PyBuffer_Release(&owner), PyBuffer_Release(&other), PyBuffer_Release(&similarity);
  return result;
}
#endif

static PyMethodDef methods[] = {
    {"supported", supported, METH_NOARGS, "Whether this processor has the instructions that the kernel needs."},
#ifdef HAVE_KERNEL
    {"products", products, METH_VARARGS, "The kernel alone: 6 x 64 products."},
    {"pair_products", pair_products, METH_VARARGS, "Exact products of pairs of grid rows."},
    {"measure", measure, METH_VARARGS, "The largest coordinate and the length of rows."},
    {"pack", pack, METH_VARARGS, "Quantise rows and pack them for the kernel."},
    {"find", find, METH_VARARGS, "Find pairs that are similar enough."},
    {"count", count, METH_VARARGS, "Count gallery rows against the best positives of queries."},
#endif
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Counting with 8-bit products; see recallatk.ranking.native.", -1, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&module); }
