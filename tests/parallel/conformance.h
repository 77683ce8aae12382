#pragma once
#include "core/memory.h"
#include "parallel/communicator.h"

namespace tessera::parallel::test {

/// What any communicator must do; to be called by every member of the group. Failures are GoogleTest's. The values are
/// functions of (rank, index), so that every member knows the answer by itself.
void expect_all_reduces(Communicator& group, core::MemoryPool& pool);
void expect_reduce_scatters(Communicator& group, core::MemoryPool& pool);
void expect_all_gathers(Communicator& group, core::MemoryPool& pool);
void expect_broadcasts(Communicator& group, core::MemoryPool& pool);
void expect_all_to_alls(Communicator& group, core::MemoryPool& pool);
void expect_exchanges(Communicator& group, core::MemoryPool& pool);
/// Many operations in flight, waited for in another order on every rank.
void expect_any_order_of_waiting(Communicator& group, core::MemoryPool& pool);
/// Payload and wire elements of every operation, by purpose.
void expect_traffic(Communicator& group, core::MemoryPool& pool);
/// Operands that do not fit are refused before anything is sent, on every rank alike.
void expect_refusals(Communicator& group, core::MemoryPool& pool);

}  // namespace tessera::parallel::test
