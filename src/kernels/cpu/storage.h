#pragma once
#include "core/dtype.h"
#include "core/error.h"

namespace tessera::kernels::cpu {

/// Calls body.template operator()<T>() with the storage type of a floating dtype.
template <typename Body>
void with_storage(core::DType dtype, const Body& body) {
    switch (dtype) {
        case core::DType::f32:
            body.template operator()<float>();
            return;
        case core::DType::bf16:
            body.template operator()<core::bf16>();
            return;
        case core::DType::f16:
            body.template operator()<core::f16>();
            return;
        default:
            TESSERA_INVARIANT(false);
    }
}

}  // namespace tessera::kernels::cpu
