// The critics' TD-learning, one member of the ensemble at a time.
//
// A member's weights, activations and gradients fit into one core's second-level cache. Each thread owns some
// members and takes each through its whole update (forward, loss, backward, Adam, spectral projection, Polyak
// average), where batched products would stream all members through memory between any two of these steps.
// No sum is shared between threads: results do not depend on their number or timing, bit for bit.
//
// How matrices are multiplied depends on the processor: with its vectors (avx512.hpp) or its tiles (amx.hpp).
//
// Both critics are one network here. With h = relu(x W1 + b1), z = relu(f(h) W2 + b2), per transition:
//   plain:    f(h) = h,             value = z . V + c
//   residual: f(h) = layer norm,    value = z . (W3 V) + (h + b3) . V + c
// As the value is one number, the outer matrix W3 only ever meets vectors: so do its gradients, of rank one.

#include <cmath>
#include <type_traits>
#include <utility>

#include "avx512.hpp"
#if defined(__AMX_BF16__) && defined(__linux__)
#include "amx.hpp"
#else
namespace amx = avx512;
#endif

// The order of the critic's parameters; a plain critic has null pointers where it has no such layer.
enum Parameter { FIRST, FIRST_BIAS, GAIN, SHIFT, INNER, INNER_BIAS, OUTER, OUTER_BIAS, HEAD, HEAD_BIAS, PARAMETERS };

extern "C" struct Problem {  // mirrored by ctypes
    Index members, batch, inputs, hidden, threads, tiles;
    float *online[PARAMETERS], *averaged[PARAMETERS], *means[PARAMETERS], *squares[PARAMETERS];
    float *left[PARAMETERS], *right[PARAMETERS];  // singular vectors of the matrices that are projected, else null
    float norm_epsilon, first_rate, second_rate, second_decay, epsilon, tau;  // 1 - 0.999 loses digits in float: given

    bool residual() const { return online[OUTER] != nullptr; }
    Index size(int parameter) const {  // of one member
        switch (parameter) {
            case FIRST: return inputs * hidden;
            case INNER: case OUTER: return hidden * hidden;
            case HEAD_BIAS: return 1;
            default: return hidden;
        }
    }
};

namespace {

constexpr auto nothing = [](Index, Index) {};

template <class Product>
struct Workspace {  // a thread's own, kept between calls
    Memory memory;
    Product first_layer, square_layer;
    float *first, *normal, *hidden, *gradient;      // [batch, hidden]
    float *rows, *next_rows;                        // some of a weight gradient's
    float *centre, *scale, *errors;                 // [batch]
    float *readout, *image, *by_hidden;             // [hidden]
    float* by[PARAMETERS];                          // gradients of the parameters that are vectors

    void fit(Index batch, Index hidden) {
        const Index room = (batch + Product::STRIP) * hidden, padded = (batch + LANES - 1) / LANES * LANES;
        float* next = memory.fit(4 * room + 2 * Product::STRIP * hidden + 3 * padded + (3 + PARAMETERS) * hidden);
        const auto take = [&](Index size) { return std::exchange(next, next + size); };
        for (float** part : {&first, &normal, &this->hidden, &gradient}) *part = take(room);
        rows = take(Product::STRIP * hidden);
        next_rows = take(Product::STRIP * hidden);
        for (float** part : {&centre, &scale, &errors}) *part = take(padded);
        for (float** part : {&readout, &image, &by_hidden}) *part = take(hidden);
        for (float*& part : by) part = take(hidden);
    }
};

template <class Product>
class Member {
  public:
    Member(const Problem& problem, Index index, Workspace<Product>& space)
        : p(problem), n(index), w(space), size(problem.hidden), residual(problem.residual()) {}

    // Values of the averaged network.
    void evaluate(const float* x, float* values) {
        forward(p.averaged, x, values, false, nothing);
    }

    // One step of Adam towards the target. Leaves the values before it, and returns the loss.
    float learn(const float* x, const float* target, float rate, float square_scale, float* values) {
        step_rate = rate;
        step_scale = square_scale;
        loss = 0;
        for (float* sum : w.by) std::fill_n(sum, size, 0.f);
        std::fill_n(w.by_hidden, size, 0.f);
        forward(p.online, x, values, true, [&](Index i, Index count) { backward_head(i, count, values, target); });
        finish_head();
        backward_square();
        Matrix inputs{residual ? w.normal : w.first, p.batch, size};
        inputs.by_line = w.errors;
        update_matrix(INNER, inputs, active(), w.readout);
        update_matrix(FIRST, {x, p.batch, p.inputs}, {w.gradient, p.batch, size}, nullptr);
        if (residual) update_outer();
        for (int parameter : {FIRST_BIAS, GAIN, SHIFT, INNER_BIAS, OUTER_BIAS, HEAD, HEAD_BIAS})
            if (net[parameter]) {
                adam(parameter, 0, p.size(parameter), w.by[parameter]);
                average(parameter, 0, p.size(parameter));
            }
        return loss;
    }

  private:
    const Problem& p;
    const Index n;
    Workspace<Product>& w;
    const Index size;
    const bool residual;
    float* const* net = nullptr;
    float step_rate = 0, step_scale = 0, loss = 0;

    float* of(int parameter) const { return net[parameter] + n * p.size(parameter); }
    Matrix active() const {  // which of the square layer's units are positive, once `backward_head` has said so
        Matrix mask{w.hidden, p.batch, size};
        mask.binary = true;
        return mask;
    }

    // Evaluate the network with the given weights, some transitions at a time; `after(begin, count)` hears of their
    // values. Activations stay in the workspace if they are to be kept.
    template <class After>
    void forward(float* const* weights, const float* x, float* values, bool keep, After after) {
        net = weights;
        const float* head = of(HEAD);
        const float offset = *of(HEAD_BIAS) + (residual ? dot(of(OUTER_BIAS), head, size) : 0);
        for (Index i = 0; i < size; i++) w.readout[i] = residual ? dot(of(OUTER) + i * size, head, size) : head[i];
        w.first_layer.set({of(FIRST), p.inputs, size});
        w.square_layer.set({of(INNER), size, size});
        Product::for_strips(p.batch, [&](Index i, Index count) {
            const Index begin = keep ? i * size : 0;
            float *first = w.first + begin, *normal = w.normal + begin, *hidden = w.hidden + begin;
            w.first_layer.multiply({x + i * p.inputs, count, p.inputs}, first, nothing);
            for (Index b = 0; b < count; b++) {
                bias_relu(first + b * size, of(FIRST_BIAS));
                if (residual) normalise(first + b * size, normal + b * size, w.centre[i + b], w.scale[i + b]);
            }
            w.square_layer.multiply({residual ? normal : first, count, size}, hidden, nothing);
            for (Index b = 0; b < count; b++) {
                bias_relu(hidden + b * size, of(INNER_BIAS));
                values[i + b] = dot(hidden + b * size, w.readout, size) + offset;
                if (residual) values[i + b] += dot(first + b * size, head, size);
            }
            after(i, count);
        });
    }

    void bias_relu(float* row, const float* bias) const {
        for (Index j = 0; j < size; j += LANES)
            store(row + j, _mm512_max_ps(all(0), load(row + j) + load(bias + j)));  // what is not a number stays so
    }

    void normalise(const float* in, float* out, float& centre, float& scale) const {
        const float *gain = of(GAIN), *shift = of(SHIFT);
        centre = sum_of(size, [=](Index j) { return load(in + j); }) / size;
        const Vector middle = all(centre);
        const float squares = sum_of(size, [=](Index j) { return (load(in + j) - middle) * (load(in + j) - middle); });
        scale = 1 / std::sqrt(squares / size + p.norm_epsilon);
        for (Index j = 0; j < size; j += LANES)
            store(out + j, (load(in + j) - middle) * all(scale) * load(gain + j) + load(shift + j));
    }

    // From the loss 1/2 mean (value - target)^2 to the square layer. The gradient before its ReLU is
    // error[b] readout[j] where the unit is active, else 0: zeros and ones take the place of the activations, and the
    // factors come in where they cost nothing.
    void backward_head(Index i, Index count, const float* values, const float* target) {
        for (Index b = i; b < i + count; b++) {
            const float difference = values[b] - target[b], error = difference / p.batch;
            float *row = w.hidden + b * size, *by_bias = w.by[INNER_BIAS];
            w.errors[b] = error;
            loss += 0.5f * difference * error;
            *w.by[HEAD_BIAS] += error;
            if (residual) add_scaled(w.by[HEAD], error, w.first + b * size, size);
            for (Index j = 0; j < size; j += LANES) {
                const Vector value = load(row + j), active = positive(value, all(1));
                store(w.by_hidden + j, load(w.by_hidden + j) + all(error) * value);
                store(by_bias + j, load(by_bias + j) + all(error) * active);
                store(row + j, active);
            }
        }
    }

    // What the sums over the batch still need.
    void finish_head() {
        for (Index j = 0; j < size; j++) w.by[INNER_BIAS][j] *= w.readout[j];
        if (!residual) {
            std::copy_n(w.by_hidden, size, w.by[HEAD]);
            return;
        }
        const float total = *w.by[HEAD_BIAS];
        for (Index i = 0; i < size; i++) add_scaled(w.by[HEAD], w.by_hidden[i], of(OUTER) + i * size, size);
        add_scaled(w.by[HEAD], total, of(OUTER_BIAS), size);
        add_scaled(w.by[OUTER_BIAS], total, of(HEAD), size);
    }

    // Through the square layer, the normalisation and the first ReLU.
    void backward_square() {
        Matrix weights{of(INNER), size, size};
        weights.by_column = w.readout;
        w.square_layer.set(weights.t());
        Product::for_strips(p.batch, [&](Index i, Index count) {
            w.square_layer.multiply(active().strip(i, count), w.gradient + i * size, nothing);
            for (Index b = i; b < i + count; b++) {
                float *row = w.gradient + b * size, *first = w.first + b * size, *sums = w.by[FIRST_BIAS];
                if (residual) backward_normalise(b);
                const Vector factor = all(residual ? 1 : w.errors[b]);
                for (Index j = 0; j < size; j += LANES) {
                    const Vector gradient = positive(load(first + j), factor * load(row + j));
                    store(row + j, gradient);
                    store(sums + j, load(sums + j) + gradient);
                }
            }
        });
    }

    // Takes the error in, too, and adds the gradient that passes by the block.
    void backward_normalise(Index b) {
        float *row = w.gradient + b * size, *by_gain = w.by[GAIN], *by_shift = w.by[SHIFT];
        const float *in = w.first + b * size, *gain = of(GAIN), *head = of(HEAD);
        const Vector centre = all(w.centre[b]), scale = all(w.scale[b]), error = all(w.errors[b]);
        Vector sum = all(0), along = all(0);
        for (Index j = 0; j < size; j += LANES) {
            const Vector by_output = error * load(row + j), normal = (load(in + j) - centre) * scale;
            const Vector by_normal = by_output * load(gain + j);
            store(by_gain + j, load(by_gain + j) + by_output * normal);
            store(by_shift + j, load(by_shift + j) + by_output);
            store(row + j, by_normal);
            sum += by_normal;
            along += by_normal * normal;
        }
        const Vector mean = all(_mm512_reduce_add_ps(sum) / size), slope = all(_mm512_reduce_add_ps(along) / size);
        for (Index j = 0; j < size; j += LANES) {
            const Vector normal = (load(in + j) - centre) * scale;
            store(row + j, scale * (load(row + j) - mean - normal * slope) + error * load(head + j));
        }
    }

    // The weight gradient inputs^T gradients, times factors of its columns if any, some rows at a time. A strip is used
    // while the next one is computed: tiles and vectors work side by side.
    void update_matrix(int parameter, const Matrix& inputs, const Matrix& gradients, const float* factors) {
        w.square_layer.set(gradients);
        start_image();
        Index ready = 0, rows = 0;  // the strip that waits
        const auto use = [&](Index share, Index shares) {
            for (Index r = rows * share / shares; r < rows * (share + 1) / shares; r++) {
                float* row = w.rows + r * size;
                if (factors)
                    for (Index j = 0; j < size; j += LANES) store(row + j, load(row + j) * load(factors + j));
                update_row(parameter, ready + r, row);
            }
        };
        Product::for_strips(inputs.columns, [&](Index i, Index count) {
            w.square_layer.multiply(inputs.t().strip(i, count), w.next_rows, [&](Index share, Index shares) {
                ask_for_state(parameter, i + count * share / shares, i + count * (share + 1) / shares);
                use(share, shares);
            });
            std::swap(w.rows, w.next_rows);
            ready = i, rows = count;
        });
        use(0, 1);
        project(parameter);
    }

    void update_outer() {
        start_image();
        for (Index i = 0; i < size; i++) {
            for (Index j = 0; j < size; j += LANES) store(w.rows + j, all(w.by_hidden[i]) * load(of(HEAD) + j));
            update_row(OUTER, i, w.rows);
        }
        project(OUTER);
    }

    // Adam, and what else can be done while the row is in the first-level cache: the average, or the first half of the
    // power iteration of a matrix whose average has to wait for its projection.
    void update_row(int parameter, Index i, const float* gradient) const {
        adam(parameter, i * size, size, gradient);
        const float* left = p.left[parameter];
        if (left) add_scaled(w.image, left[n * size + i], of(parameter) + i * size, size);
        else average(parameter, i * size, size);
    }

    // Ask for what Adam will need for rows i to end.
    void ask_for_state(int parameter, Index i, Index end) const {
        const Index offset = n * p.size(parameter) + i * size;
        for (float* const* tensors : {p.means, p.squares, p.averaged})
            prefetch(tensors[parameter] + offset, (end - i) * size);
    }

    void adam(int parameter, Index begin, Index count, const float* gradients) const {
        const Index offset = n * p.size(parameter) + begin;
        float *__restrict weight = p.online[parameter] + offset, *__restrict mean = p.means[parameter] + offset;
        float* __restrict square = p.squares[parameter] + offset;
        const Vector first = all(p.first_rate), keep = all(p.second_decay), second = all(p.second_rate);
        for (Index j = 0; j < count; j += LANES) {
            const __mmask16 some = count - j >= LANES ? 0xffff : (1 << (count - j)) - 1;  // the last bias is alone
            const Vector g = _mm512_maskz_loadu_ps(some, gradients + j), old = _mm512_maskz_loadu_ps(some, mean + j);
            const Vector m = old + first * (g - old);
            const Vector v = keep * _mm512_maskz_loadu_ps(some, square + j) + second * g * g;
            const Vector step = all(step_rate) * m * reciprocal(root(v * all(step_scale)) + all(p.epsilon));
            _mm512_mask_storeu_ps(mean + j, some, m);
            _mm512_mask_storeu_ps(square + j, some, v);
            _mm512_mask_storeu_ps(weight + j, some, _mm512_maskz_loadu_ps(some, weight + j) - step);
        }
    }

    void start_image() const { std::fill_n(w.image, size, 0.f); }

    // One power iteration, from the image of the left singular vector on; then the matrix is scaled so that its largest
    // singular value is 1, and averaged. Nothing is done where nothing is projected.
    void project(int parameter) {
        if (!p.left[parameter]) return;
        float *weight = of(parameter), *left = p.left[parameter] + n * size, *right = p.right[parameter] + n * size;
        const float norm = std::max(std::sqrt(dot(w.image, w.image, size)), 1e-12f);
        for (Index j = 0; j < size; j++) right[j] = w.image[j] / norm;
        for (Index i = 0; i < size; i++) w.image[i] = dot(weight + i * size, right, size);
        const float sigma = std::sqrt(dot(w.image, w.image, size));
        for (Index i = 0; i < size; i++) left[i] = w.image[i] / sigma;
        for (Index i = 0; i < size; i++) {
            for (Index j = 0; j < size; j++) weight[i * size + j] *= 1 / sigma;
            average(parameter, i * size, size);
        }
    }

    // Move the averaged weights towards the weights.
    void average(int parameter, Index begin, Index count) const {
        const Index offset = n * p.size(parameter) + begin;
        const float *__restrict weight = p.online[parameter] + offset, tau = p.tau;
        float* __restrict averaged = p.averaged[parameter] + offset;
        for (Index j = 0; j < count; j++) averaged[j] += tau * (weight[j] - averaged[j]);
    }
};

template <class Product, class Body>
void for_members_by(const Problem& p, Body body) {
    const unsigned mode = _mm_getcsr();  // whether denormal numbers count: as the caller has it, in all threads
#pragma omp parallel num_threads(p.threads)
    {
        thread_local Workspace<Product> space;
        [[maybe_unused]] typename Product::Registers registers;
        _mm_setcsr(mode);
        space.fit(p.batch, p.hidden);
#pragma omp for schedule(static)
        for (Index n = 0; n < p.members; n++) body(n, Member<Product>(p, n, space));
    }
}

template <class Body>
void for_members(const Problem& p, Body body) {
    p.tiles ? for_members_by<amx::Product>(p, body) : for_members_by<avx512::Product>(p, body);
}

}  // namespace

extern "C" bool has_tiles() { return !std::is_same_v<amx::Product, avx512::Product> && amx::Product::available(); }

// x [batch, inputs] -> values [members, batch] of the averaged networks.
extern "C" void target_values(const Problem* p, const float* x, float* values) {
    for_members(*p, [&](Index n, auto member) { member.evaluate(x, values + n * p->batch); });
}

// One update of all members towards target [batch]. Leaves values [members, batch] before it, and losses [members].
// Given next_x, the averaged networks' values of it after the update: their weights are still in the cache.
extern "C" void learn(const Problem* p, const float* x, const float* target, float rate, float square_scale,
                      float* values, float* losses, const float* next_x, float* next_values) {
    for_members(*p, [&](Index n, auto member) {
        losses[n] = member.learn(x, target, rate, square_scale, values + n * p->batch);
        if (next_x) member.evaluate(next_x, next_values + n * p->batch);
    });
}
