// Dropout with the masks of torch's EnsembleDropout (nn/ensemble.py): a hash of key, call and place.

#pragma once

#include "vectors.hpp"

typedef uint32_t Bits __attribute__((vector_size(LANES * sizeof(uint32_t))));

// Mix the bits of one number or of a vector of them (Wellons' low-bias hash).
template <class Number>
Number hashed(Number bits) {
    bits ^= bits >> 16;
    bits *= 0x7feb352du;
    bits ^= bits >> 15;
    bits *= 0x846ca68bu;
    return bits ^ (bits >> 16);
}

// The masks of one layer, call after call. Without dropout there are none, and the pointers are null.
extern "C" struct Stream {  // mirrored by ctypes
    const int32_t* key;
    int32_t* calls;

    uint32_t next() const {  // counts a call, and returns what its masks are made from
        if (!calls) return 0;
        *calls = int32_t(uint32_t(*calls) + 1);
        return hashed(hashed(uint32_t(*calls)) + uint32_t(*key));
    }
};

// What the masks of both layers are made from, in one pass through all members.
extern "C" struct Masks {  // mirrored by ctypes
    uint32_t seeds[2];

    static Masks next(const Stream (&streams)[2]) { return {{streams[0].next(), streams[1].next()}}; }
};

// Factors of the units in one row: 0 for those that are dropped. They are computed again for the backward pass, which
// takes less time than to keep them.
class Dropout {
  public:
    Dropout(uint32_t first, Index below, float scale) : below(int32_t(below) - Mask{}), scale((Mask)all(scale)) {
        uint32_t numbers[LANES];
        for (Index lane = 0; lane < LANES; lane++) numbers[lane] = first + uint32_t(lane);
        std::memcpy(&start, numbers, sizeof start);
    }

    Vector operator()(Index j) const {  // of the units from j on
        const Bits number = hashed(start + uint32_t(j)) & 0x7fffffffu;
        return (Vector)(((Mask)number >= below) & scale);
    }

  private:
    Bits start;
    Mask below, scale;
};
