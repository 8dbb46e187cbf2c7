// Threads that take one member of the ensemble through its update together.

#pragma once

#include <atomic>
#include <cmath>
#include <thread>

#include "vectors.hpp"

struct Range {
    Index begin, end;
    Index count() const { return end - begin; }
};

// One of several parts of a row of things, as equal as can be.
inline Range part(Index count, Index index, Index parts) {
    return {count * index / parts, count * (index + 1) / parts};
}

// Where threads wait for each other.
class Barrier {
  public:
    void wait(Index threads) {
        const Index now = turn.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            turn.store(now + 1, std::memory_order_release);
            return;
        }
        for (Index spins = 0; turn.load(std::memory_order_acquire) == now; spins++)
            if (spins > PATIENCE) std::this_thread::yield();  // another program may want the core
    }

  private:
    static constexpr Index PATIENCE = 2000;
    std::atomic<Index> arrived{0}, turn{0};
};

// A thread's view of its team. Everything that several threads sum up is cut into parts that do not depend on their
// number, and the parts are added in order: results are the same for any number of threads, bit for bit.
struct Team {
    Index rank, size;
    Barrier& barrier;

    void wait() const {
        if (size > 1) barrier.wait(size);
    }
    Range share(Index count) const { return part(count, rank, size); }

    template <class Body>
    void alone(Body body) const {  // one thread works, the others wait
        wait();
        if (rank == 0) body();
        wait();
    }
};

// How threads serve all members soonest, each team taking whole members: fewer and larger teams waste no thread, more
// and smaller ones wait less for each other.
struct Teams {
    Index count = 1, size = 1;

    Teams(Index members, Index threads) {
        constexpr Index MOST = 8;         // a batch has not many more chunks
        constexpr float WAITING = 0.03f;  // a share of a member's time, in any team of several threads
        float least = INFINITY;
        for (Index teams = std::min(members, threads); teams >= 1; teams--) {
            const Index each = std::min(MOST, threads / teams), rounds = (members + teams - 1) / teams;
            const float time = rounds * (1.f / each + (each > 1 ? WAITING : 0));
            if (time < least) least = time, count = teams, size = each;
        }
    }
};
