// FP32 products of rows and a table, summed in the order of ONNX Runtime's kernels for x86 processors: the same bits.
// NVRTC compiles this file when the first such product runs (cuda_compiler.py).

static const int TILE = 64, DEPTH = 16, SIDE = 4;

// Several rows: each sum is a chain of fused steps, cut every strides[column / 16] elements; the pieces are added in turn.
// `turned`: the table is [n, k], not [k, n]. A bias, where there is one, is what the first piece is added to.
extern "C" __global__ void __launch_bounds__(256)
rows_by_table(const float* rows, const float* table, const float* bias, float* made, int n, int k, int m, int turned,
              const int* strides)
{
    __shared__ float left[DEPTH][TILE + SIDE], right[DEPTH][TILE + SIDE];
    const int thread = threadIdx.x, across = thread % 16 * SIDE, down = thread / 16 * SIDE;
    const int column = blockIdx.x * TILE, row = blockIdx.y * TILE;
    const int stride = strides[min(column + across, n - 1) / 16];
    float total[SIDE][SIDE] = {}, piece[SIDE][SIDE] = {};
    bool first = bias == nullptr;
    if (bias != nullptr) {
        for (int j = 0; j < SIDE; j++) {
            const float begin = bias[min(column + across + j, n - 1)];
            for (int i = 0; i < SIDE; i++) {
                total[i][j] = begin;
            }
        }
    }
    for (int start = 0; start < k; start += DEPTH) {
        for (int each = thread; each < TILE * DEPTH; each += 256) {
            const int i = row + each / DEPTH, at = start + each % DEPTH;
            left[each % DEPTH][each / DEPTH] = i < m && at < k ? rows[(size_t)i * k + at] : 0.0f;
            if (turned) {
                const int j = column + each / DEPTH;
                right[each % DEPTH][each / DEPTH] = j < n && at < k ? table[(size_t)j * k + at] : 0.0f;
            } else {
                const int j = column + each % TILE, below = start + each / TILE;
                right[each / TILE][each % TILE] = j < n && below < k ? table[(size_t)below * n + j] : 0.0f;
            }
        }
        __syncthreads();
        const int depth = min(DEPTH, k - start);
#pragma unroll
        for (int at = 0; at < DEPTH; at++) {
            if (at < depth) {
#pragma unroll
                for (int i = 0; i < SIDE; i++) {
#pragma unroll
                    for (int j = 0; j < SIDE; j++) {
                        piece[i][j] = __fmaf_rn(left[at][down + i], right[at][across + j], piece[i][j]);
                    }
                }
            }
        }
        if ((start + DEPTH) % stride == 0 || start + DEPTH >= k) {
#pragma unroll
            for (int i = 0; i < SIDE; i++) {
#pragma unroll
                for (int j = 0; j < SIDE; j++) {
                    total[i][j] = first ? piece[i][j] : __fadd_rn(total[i][j], piece[i][j]);
                    piece[i][j] = 0.0f;
                }
            }
            first = false;
        }
        __syncthreads();
    }
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            if (row + down + i < m && column + across + j < n) {
                made[(size_t)(row + down + i) * n + column + across + j] = total[i][j];
            }
        }
    }
}

// One row, a table [k, n]: four products are added, then to the sum; at the end two, and one. Nothing is fused.
extern "C" __global__ void __launch_bounds__(64)
row_by_table(const float* row, const float* table, const float* bias, float* made, int n, int k)
{
    const int column = blockIdx.x * 64 + threadIdx.x;
    if (column >= n) {
        return;
    }
    const float* at = table + column;
    float total = bias != nullptr ? bias[column] : 0.0f;
    int done = 0;
#pragma unroll 4
    for (; done + 4 <= k; done += 4, at += (size_t)4 * n) {
        float four = __fmul_rn(row[done], at[0]);
        four = __fadd_rn(four, __fmul_rn(row[done + 1], at[n]));
        four = __fadd_rn(four, __fmul_rn(row[done + 2], at[(size_t)2 * n]));
        four = __fadd_rn(four, __fmul_rn(row[done + 3], at[(size_t)3 * n]));
        total = __fadd_rn(four, total);
    }
    if (k - done >= 2) {
        total = __fadd_rn(__fadd_rn(__fmul_rn(row[done], at[0]), __fmul_rn(row[done + 1], at[n])), total);
        done += 2;
        at += (size_t)2 * n;
    }
    if (done < k) {
        total = __fadd_rn(__fmul_rn(row[done], at[0]), total);
    }
    made[column] = total;
}

// One row, a table [n, k]: eight sums, each of every eighth product, of which four columns, two, or one add theirs in
// an order of their own. Eight threads share a column.
extern "C" __global__ void __launch_bounds__(256)
row_by_turned(const float* row, const float* table, const float* bias, float* made, int n, int k)
{
    const int column = blockIdx.x * 32 + threadIdx.x / 8, lane = threadIdx.x % 8;
    const float* at = table + (size_t)min(column, n - 1) * k;
    float sum = 0.0f;
#pragma unroll 4
    for (int start = 0; start < k; start += 8) {
        const int here = start + lane;
        sum = __fadd_rn(sum, here < k ? __fmul_rn(row[here], at[here]) : 0.0f);
    }
    float sums[8];
#pragma unroll
    for (int each = 0; each < 8; each++) {
        sums[each] = __shfl_sync(0xffffffffu, sum, each, 8);
    }
    if (lane != 0 || column >= n) {
        return;
    }
    float low, high;
    if (column < n / 4 * 4) {
        low = __fadd_rn(__fadd_rn(__fadd_rn(sums[0], sums[1]), sums[2]), sums[3]);
        high = __fadd_rn(__fadd_rn(__fadd_rn(sums[4], sums[5]), sums[6]), sums[7]);
    } else if (column < n / 2 * 2) {
        low = __fadd_rn(__fadd_rn(sums[0], sums[2]), __fadd_rn(sums[4], sums[6]));
        high = __fadd_rn(__fadd_rn(sums[1], sums[3]), __fadd_rn(sums[5], sums[7]));
    } else {
        low = __fadd_rn(__fadd_rn(sums[0], sums[1]), __fadd_rn(sums[2], sums[3]));
        high = __fadd_rn(__fadd_rn(sums[4], sums[5]), __fadd_rn(sums[6], sums[7]));
    }
    made[column] = __fadd_rn(__fadd_rn(low, high), bias != nullptr ? bias[column] : 0.0f);
}
