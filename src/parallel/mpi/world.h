#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/memory.h"
#include "parallel/communicator.h"

namespace tessera::parallel {

/// The processes that one mpirun started. One object a process; it initialises MPI and finalises it. All calls, and
/// those of its communicators, come from one thread.
class MpiWorld {
public:
    /// @param pool  where reductions keep what they receive, in the category `buffers`; must outlive the world.
    /// @throws EnvironmentError where MPI cannot start.
    explicit MpiWorld(core::MemoryPool& pool);
    ~MpiWorld();
    MpiWorld(const MpiWorld&) = delete;
    MpiWorld& operator=(const MpiWorld&) = delete;

    int rank() const;
    int size() const;

    /// Longest time in seconds that this process waits for others in one operation; then RunError says for whom, in
    /// which operation and with how many bytes. 0: for ever.
    void set_wait_limit_s(double seconds);

    /// The communicator of a group (a GroupFactory). Collective over the members; must not outlive the world.
    std::unique_ptr<Communicator> make_group(Axis axis, const std::vector<int>& ranks, int rank);

    /// Ends every process of the job with this exit code, without waiting for any.
    [[noreturn]] void abort(int exit_code);

    class Engine;

private:
    std::unique_ptr<Engine> engine_;
};

/// True in a process that mpirun (or srun with PMIx) started.
bool started_by_mpi();

}  // namespace tessera::parallel
