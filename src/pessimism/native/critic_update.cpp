// The critics' TD-learning, one member of the ensemble at a time.
//
// A member's weights, activations and gradients fit into one core's second-level cache. Each thread, or team of threads
// where they do not share the members evenly, takes one member after the other through its whole update (forward, loss,
// backward, Adam, spectral projection, Polyak average), where batched products would stream all members through memory
// between any two of these steps.
//
// How matrices are multiplied depends on the processor and on the precision: with its vectors, as float32 (products.hpp) or
// as bfloat16 (bfloat16.hpp), or with its tiles (amx.hpp).
//
// All critics are one network here. With h = a(x W1 + b1), z = a(f(h) W2 + b2), per transition and atom:
//   plain:      a = relu,                      f(h) = h,           value = z . V + c
//   residual:   a = relu,                      f(h) = layer norm,  value = z . (W3 V) + (h + b3) . V + c
//   normalised: a = dropout, layer norm, relu, f(h) = h,           value = z . V + c
// As the values are few, the outer matrix W3 only ever meets vectors: so do its gradients, of low rank.

#include <cfenv>
#include <vector>

#include "batched.hpp"
#include "member.hpp"
#include "products.hpp"
#include "targets.hpp"
#include "threads.hpp"
#if defined(__AMX_BF16__) && defined(__linux__)
#include "amx.hpp"
#define HAS_TILES true
#else
namespace amx = vectors;
#define HAS_TILES false
#endif
#ifdef __AVX512BF16__
#include "bfloat16.hpp"
#define HAS_PAIRS true
#else
namespace bfloat16 = vectors;
#define HAS_PAIRS false
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

template <class Products>
struct TeamSpace {
    Workspace<Products> workspace;
    Barrier barrier;
    Index member = 0;
};

template <class Products, class Body>
void for_members_by(const Problem& p, Index kept, Body body) {
    thread_local std::vector<std::unique_ptr<TeamSpace<Products>>> all_spaces;  // kept between calls
    auto& spaces = all_spaces;
    std::fenv_t mode;  // whether denormal numbers count: as the caller has it, in all threads
    std::fegetenv(&mode);
    while (Index(spaces.size()) < p.members) spaces.push_back(std::make_unique<TeamSpace<Products>>());
    // The first members go to the same teams in each call, in whose caches they may still be. Others are handed out one
    // by one: a team that is held up by other programs takes fewer of them.
    std::atomic<Index> handed_out{0};
#pragma omp parallel num_threads(int(p.threads))
    {
        thread_local Scratch<Products> scratch;
        [[maybe_unused]] typename Products::Registers registers;
        std::fesetenv(&mode);
        scratch.fit(p);
        const Teams teams(p.members, omp_get_num_threads());
        const Index index = omp_get_thread_num() / teams.size;
        if (index < teams.count) {  // the other threads are idle
            auto& space = *spaces[index];
            const Team team{omp_get_thread_num() % teams.size, teams.size, space.barrier};
            team.alone([&] { space.workspace.fit(p, kept, teams.size); });
            const auto next = [&] {
                team.alone([&] { space.member = teams.count + handed_out++; });
                return space.member;
            };
            for (Index n = index; n < p.members; n = next())
                body(n, Member<Products>(p, n, space.workspace, scratch, team));
        }
    }
}

// Call `body(n, member)` for each member, with space to keep the activations of so many rows.
template <class Body>
void for_members(const Problem& p, Index kept, Body body) {
    if (p.tiles) for_members_by<amx::Products>(p, kept, body);
    else if (p.parts) for_members_by<bfloat16::Products>(p, kept, body);
    else for_members_by<vectors::Products>(p, kept, body);
}

}  // namespace

EXPORT bool has_tiles() {
#if HAS_TILES
    return amx::Products::available();
#else
    return false;
#endif
}

EXPORT bool has_pairs() { return HAS_PAIRS; }

EXPORT bool is_parallel() { return PARALLEL; }

// x [batch, inputs] -> values [members, batch, atoms] of the averaged networks.
EXPORT void target_values(const Problem* p, const float* x, float* values) {
    const Index size = p->batch * p->atoms;
    const Masks masks = Masks::next(p->averaged_streams);
    for_members(*p, 0, [&](Index n, auto member) { member.evaluate(p->averaged, masks, x, values + n * size); });
}

// The same of the networks themselves, as the policy climbs them; and of the policy's own network, as one member. Leaves
// the masks of dropout.
EXPORT void online_values(const Problem* p, const float* x, float* values, Masks* masks) {
    const Index size = p->batch * p->atoms;
    *masks = Masks::next(p->online_streams);
    for_members(*p, 0, [&](Index n, auto member) { member.evaluate(p->online, *masks, x, values + n * size); });
}

// The gradient [members, batch, inputs] of sum(slopes values), for slopes [members, batch, atoms], and the values, under
// the masks that `online_values` left.
EXPORT void input_gradient(const Problem* p, const Masks* masks, const float* x, const float* slopes, float* values,
                           float* gradient) {
    const Index size = p->batch * p->atoms, width = p->batch * p->inputs;
    for_members(*p, p->batch, [&](Index n, auto member) {
        member.input_gradient(*masks, x, slopes + n * size, values + n * size, gradient + n * width);
    });
}

// Values and gradient of one reading, which has masks of its own.
EXPORT void values_and_gradient(const Problem* p, const float* x, const float* slopes, float* values, float* gradient) {
    const Masks masks = Masks::next(p->online_streams);
    input_gradient(p, &masks, x, slopes, values, gradient);
}

// One update of all members towards target [batch, 1 or targets]. Leaves values [members, batch, atoms] before it, and
// losses [members]. Given next_x, the averaged networks' values of it after the update: their weights are still in the
// cache.
EXPORT void learn(const Problem* p, const float* x, const float* target, float rate, float square_scale,
                  float* values, float* losses, const float* next_x, float* next_values) {
    const Index size = p->batch * p->atoms;
    const Masks masks = Masks::next(p->online_streams), next_masks = next_x ? Masks::next(p->averaged_streams) : Masks{};
    for_members(*p, p->batch, [&](Index n, auto member) {
        member.learn(masks, x, target, rate, square_scale, values + n * size, losses + n);
        if (next_x) member.evaluate(p->averaged, next_masks, next_x, next_values + n * size);
    });
}

// One update after the other, with targets from the averaged networks' values of the next inputs. With several masks these
// have as many rows for each transition, and a problem of their own, `reading`.
EXPORT void learn_all(const Problem* p, const Problem* reading, const Updates* all) {
    const Index width = p->batch * p->inputs, next_width = reading->batch * p->inputs;
    const bool together = reading->batch == p->batch;
    std::vector<float> targets(p->batch);
    target_values(reading, all->next_inputs, all->next_values);
    for (Index update = 0; update < all->count; update++) {
        td_targets(*all, update, p->batch, all->next_values, targets.data());
        const float* following = update + 1 < all->count ? all->next_inputs + (update + 1) * next_width : nullptr;
        learn(p, all->inputs + update * width, targets.data(), all->rates[update], all->square_scales[update], all->values,
              all->losses, together ? following : nullptr, all->next_values);
        if (following && !together) target_values(reading, following, all->next_values);
    }
}

// Products of two stacks of matrices, for what is not a critic of the above.
EXPORT void batched_product(const Batched* p) {
    p->rounded ? multiply_stacks<bfloat16::Products>(*p) : multiply_stacks<vectors::Products>(*p);
}
