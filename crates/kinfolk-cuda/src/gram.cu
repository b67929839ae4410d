// Training of networks with one hidden layer on all rows, in the space of the rows: N rows of D numbers a client, H hidden units, O
// outputs. Every change of the first weight is Q transposed times X, so that its outputs are those of the start plus X X' Q, and the sum over
// clients of what they have learned is one product of all their Q and X.

struct Gram {
    const void* rows;           // all rows of the device
    const u32* order;           // the rows of the clients, one after the other
    const u32* classes;         // of all rows of the device
    float* x;                   // the clients' rows as numbers
    const float* sorted_x;      // the same, clients sorted by their choice
    const float* products;      // X times the first weight of every model: models x rows x H
    const float* const* models;
    const float* grams;         // of every client X X'
    double* losses;             // models x clients
    const u32* choices;         // of every client
    const u32* places;          // of every client its place among the sorted ones
    const double* weights;
    float* changes;             // Q, sorted
    float* uppers;              // of every client all above the first weight
    float* scratch;
    double* total;
    u32 clients, steps, bytes;
    float length, smoothing;
};

constexpr int UPPER = H + O * H + O, FIRST = H * D;

// Rows as numbers; from the device's rows, or sorted.
extern "C" __global__ void gram_rows(const __grid_constant__ Gram g) {
    u64 row = blockIdx.x;
    u64 from = (u64)g.order[row] * D;
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        g.x[row * D + i] = g.bytes ? ((const u8*)g.rows)[from + i] * (1.0f / 255.0f) : ((const float*)g.rows)[from + i];
    }
}

extern "C" __global__ void gram_sort(const __grid_constant__ Gram g) {
    u32 client = blockIdx.x / N, row = blockIdx.x % N;
    const float* from = g.sorted_x + (u64)blockIdx.x * D;
    float* to = g.x + ((u64)g.places[client] * N + row) * D;
    for (int i = threadIdx.x; i < D; i += blockDim.x) to[i] = from[i];
}

// From a row's hidden units to its outputs: every lane has all of them.
__device__ __forceinline__ void outputs_of(const float* hidden, const float* weight, const float* bias, int lane, float (&out)[O]) {
    for (int o = 0; o < O; ++o) out[o] = 0;
    for (int c = lane; c < H; c += 32) {
        float h = hidden[c];
#pragma unroll
        for (int o = 0; o < O; ++o) out[o] += h * weight[o * H + c];
    }
#pragma unroll
    for (int o = 0; o < O; ++o) {
        for (int way = 16; way > 0; way /= 2) out[o] += __shfl_xor_sync(0xffffffffu, out[o], way);
        out[o] += bias[o];
    }
}

// The loss of every client with every model.
extern "C" __global__ void __launch_bounds__(256) gram_judge(const __grid_constant__ Gram g) {
    __shared__ float weight[O * H], bias[H], last[O], rows[N], hidden[8][H];
    u32 client = blockIdx.x, model = blockIdx.y;
    const float* upper = g.models[model] + FIRST;
    for (int i = threadIdx.x; i < O * H; i += 256) weight[i] = upper[H + i];
    for (int i = threadIdx.x; i < H; i += 256) bias[i] = upper[i];
    if (threadIdx.x < O) last[threadIdx.x] = upper[H + O * H + threadIdx.x];
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float* z = g.products + ((u64)model * g.clients + client) * N * H;
    Targets wanted = {g.classes, 0, g.smoothing};
    for (int row = warp; row < N; row += 8) {
        for (int c = lane; c < H; c += 32) hidden[warp][c] = fmaxf(z[row * H + c] + bias[c], 0.0f);
        __syncwarp();
        float out[O];
        outputs_of(hidden[warp], weight, last, lane, out);
        bool right;
        float loss = judge_row<2, O, false>(wanted, out, 0, g.order[client * N + row], 0, right);
        if (lane == 0) rows[row] = loss;
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (int row = 0; row < N; ++row) sum += rows[row];
        g.losses[(u64)model * g.clients + client] = sum;
    }
}

// All steps of one client in one block.
extern "C" __global__ void __launch_bounds__(512) gram_train(const __grid_constant__ Gram g) {
    constexpr int LINES = 5, TILES = (N + LINES - 1) / LINES * (H / 4);
    extern __shared__ __align__(16) float shared[];
    float* q = shared;
    float* weight = q + N * H;
    float* bias = weight + O * H;
    float* last = bias + H;
    float* slopes = last + O;
    float* hidden = IN_SHARED ? slopes + N * O : g.scratch + (u64)blockIdx.x * N * H;
    float* own_gram = hidden + N * H;
    u32 client = blockIdx.x, model = g.choices[client];
    const float* gram = g.grams + (u64)client * N * N;
    const float* upper = g.models[model] + FIRST;
    const float* z = g.products + ((u64)model * g.clients + client) * N * H;
    for (int i = threadIdx.x; i < N * H; i += 512) q[i] = 0;
    for (int i = threadIdx.x; i < O * H; i += 512) weight[i] = upper[H + i];
    for (int i = threadIdx.x; i < H; i += 512) bias[i] = upper[i];
    if (threadIdx.x < O) last[threadIdx.x] = upper[H + O * H + threadIdx.x];
    if (IN_SHARED) {
        for (int i = threadIdx.x; i < N * N; i += 512) own_gram[i] = gram[i];
        gram = own_gram;
    }
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Targets wanted = {g.classes, 0, g.smoothing};
    for (u32 step = 0; step < g.steps; ++step) {
        for (int tile = threadIdx.x; tile < TILES; tile += 512) {
            int r0 = tile / (H / 4) * LINES, c = tile % (H / 4) * 4;
            float sums[LINES][4];
#pragma unroll
            for (int r = 0; r < LINES; ++r) {
                float4 start = r0 + r < N ? *(const float4*)(z + (r0 + r) * H + c) : make_float4(0, 0, 0, 0);
                sums[r][0] = start.x; sums[r][1] = start.y; sums[r][2] = start.z; sums[r][3] = start.w;
            }
            if (step > 0) {
#pragma unroll 2
                for (int j = 0; j < N; ++j) {
                    float4 own = *(const float4*)(q + j * H + c);
#pragma unroll
                    for (int r = 0; r < LINES; ++r) {
                        // X X' is symmetric.
                        float factor = gram[j * N + min(r0 + r, N - 1)];
                        sums[r][0] += factor * own.x; sums[r][1] += factor * own.y;
                        sums[r][2] += factor * own.z; sums[r][3] += factor * own.w;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < LINES; ++r) {
                if (r0 + r >= N) break;
                for (int i = 0; i < 4; ++i) hidden[(r0 + r) * H + c + i] = fmaxf(sums[r][i] + bias[c + i], 0.0f);
            }
        }
        __syncthreads();
        for (int row = warp; row < N; row += 16) {
            float out[O], slope[O];
            outputs_of(hidden + row * H, weight, last, lane, out);
            bool right;
            judge_row<2, O, true>(wanted, out, slope, g.order[client * N + row], 1.0f / N, right);
            if (lane == 0) for (int o = 0; o < O; ++o) slopes[row * O + o] = slope[o];
        }
        __syncthreads();
        // A thread has a hidden unit: its weights, its bias and its column of Q.
        for (int c = threadIdx.x; c < H; c += 512) {
            float own[O], moves[O], bias_move = 0;
#pragma unroll
            for (int o = 0; o < O; ++o) { own[o] = weight[o * H + c]; moves[o] = 0; }
#pragma unroll 2
            for (int row = 0; row < N; ++row) {
                float h = hidden[row * H + c], down = 0;
#pragma unroll
                for (int o = 0; o < O; ++o) {
                    float slope = slopes[row * O + o];
                    moves[o] += slope * h;
                    down += slope * own[o];
                }
                down = h > 0 ? down : 0.0f;
                bias_move += down;
                q[row * H + c] -= g.length * down;
            }
#pragma unroll
            for (int o = 0; o < O; ++o) weight[o * H + c] = own[o] - g.length * moves[o];
            bias[c] -= g.length * bias_move;
        }
        if (threadIdx.x >= 480 && threadIdx.x < 480 + O) {
            int o = threadIdx.x - 480;
            float move = 0;
            for (int row = 0; row < N; ++row) move += slopes[row * O + o];
            last[o] -= g.length * move;
        }
        __syncthreads();
    }
    float share = (float)g.weights[client];
    float* changes = g.changes + (u64)g.places[client] * N * H;
    for (int i = threadIdx.x; i < N * H; i += 512) changes[i] = share * q[i];
    float* to = g.uppers + (u64)client * UPPER;
    for (int i = threadIdx.x; i < H; i += 512) to[i] = bias[i];
    for (int i = threadIdx.x; i < O * H; i += 512) to[H + i] = weight[i];
    if (threadIdx.x < O) to[H + O * H + threadIdx.x] = last[threadIdx.x];
}

// The sum of all above the first weight, by choice.
extern "C" __global__ void gram_total(const __grid_constant__ Gram g) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.y;
    if (i >= UPPER) return;
    double sum = 0;
    for (u32 client = 0; client < g.clients; ++client) {
        if (g.choices[client] == slot) sum += g.weights[client] * g.uppers[(u64)client * UPPER + i];
    }
    g.total[(u64)slot * UPPER + i] = sum;
}
