// What the communicators of one process share: MPI's calls with their errors, and the works in flight.
#pragma once
#include <mpi.h>

#include <deque>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "parallel/mpi/world.h"

namespace tessera::parallel {

/// Throws EnvironmentError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

class MpiWork;

class MpiWorld::Engine {
public:
    explicit Engine(core::MemoryPool& pool);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    core::MemoryPool& pool() { return pool_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    double wait_limit_s = 600;

    /// Keeps the work moving until it has completed, whether or not anybody waits for it: another rank may need its
    /// second half to complete something that we wait for.
    void add(std::shared_ptr<MpiWork> work);
    /// Moves every work in flight. True if any of them moved.
    bool advance_all();

private:
    core::MemoryPool& pool_;
    bool initialised_here_ = false;
    int rank_ = 0;
    int size_ = 1;
    std::list<std::shared_ptr<MpiWork>> in_flight_;
};

/// A chain of stages, each of which posts messages; the next begins when the messages of the one before have gone.
class MpiWork final : public Work::Pending {
public:
    using Stage = std::function<void(MpiWork&)>;

    /// @param what  "all_reduce of gradients in the data group", for messages
    MpiWork(MpiWorld::Engine& engine, MPI_Comm comm, std::vector<int> ranks, int tag, std::string what)
        : engine_(engine), comm_(comm), ranks_(std::move(ranks)), tag_(tag), what_(std::move(what)) {}

    void then(Stage stage) { stages_.push_back(std::move(stage)); }
    /// For stages: `peer` is a place in the group. Nothing is posted for 0 bytes.
    void send(const std::byte* data, std::int64_t bytes, int peer, int tag_offset = 0);
    void receive(std::byte* data, std::int64_t bytes, int peer, int tag_offset = 0);

    bool advance() override;
    void synchronize() override;
    /// As advance, for this work alone. True if it moved.
    bool step();
    bool done() const { return requests_.empty() && stages_.empty(); }

private:
    struct Transfer {
        int peer;
        std::int64_t bytes;
        bool receiving;
    };
    void check_transfer(const Transfer& transfer, int code) const;
    void complete(const std::vector<int>& indices, const std::vector<MPI_Status>& statuses);
    [[noreturn]] void give_up(double seconds) const;

    MpiWorld::Engine& engine_;
    MPI_Comm comm_;
    std::vector<int> ranks_;
    int tag_;
    std::string what_;
    std::deque<Stage> stages_;
    std::vector<MPI_Request> requests_;
    std::vector<Transfer> transfers_;  // of the requests, in their order
};

}  // namespace tessera::parallel
