#include "parallel/mpi/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "core/clock.h"
#include "core/error.h"

namespace tessera::parallel {

namespace {

/// MPI counts in int; larger messages go in pieces, which arrive in order.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 30;

/// After so many fruitless looks a waiting process sleeps between looks, so that ranks that share a core get on.
constexpr int kLooksBeforeSleep = 200;
constexpr std::chrono::microseconds kSleep{50};

}  // namespace

void check_mpi(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    core::raise<core::EnvironmentError>("{}: {}", call, std::string(text, static_cast<std::size_t>(length)));
}

MpiWorld::Engine::Engine(core::MemoryPool& pool) : pool_(pool) {
    int initialised = 0;
    check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
    if (initialised == 0) {
        int provided = 0;
        check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
        initialised_here_ = true;
        if (provided < MPI_THREAD_FUNNELED) {
            core::raise<core::EnvironmentError>("MPI_Init_thread: this MPI does not allow threads beside its own");
        }
    }
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

MpiWorld::Engine::~Engine() {
    // Finalising waits for the others; an unwinding rank that did would hang beside a dead peer. Its program aborts.
    if (initialised_here_ && std::uncaught_exceptions() == 0) MPI_Finalize();
}

void MpiWorld::Engine::add(std::shared_ptr<MpiWork> work) {
    work->step();
    if (!work->done()) in_flight_.push_back(std::move(work));
}

bool MpiWorld::Engine::advance_all() {
    bool moved = false;
    for (auto at = in_flight_.begin(); at != in_flight_.end();) {
        moved = (*at)->step() || moved;
        at = (*at)->done() ? in_flight_.erase(at) : std::next(at);
    }
    return moved;
}

void MpiWork::send(const std::byte* data, std::int64_t bytes, int peer, int tag_offset) {
    for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
        const std::int64_t piece = std::min(kPieceBytes, bytes - at);
        requests_.emplace_back();
        transfers_.push_back({.peer = peer, .bytes = piece, .receiving = false});
        check_mpi(MPI_Isend(data + at, static_cast<int>(piece), MPI_BYTE, peer, tag_ + tag_offset, comm_,
                            &requests_.back()),
                  "MPI_Isend");
    }
}

void MpiWork::receive(std::byte* data, std::int64_t bytes, int peer, int tag_offset) {
    for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
        const std::int64_t piece = std::min(kPieceBytes, bytes - at);
        requests_.emplace_back();
        transfers_.push_back({.peer = peer, .bytes = piece, .receiving = true});
        check_mpi(MPI_Irecv(data + at, static_cast<int>(piece), MPI_BYTE, peer, tag_ + tag_offset, comm_,
                            &requests_.back()),
                  "MPI_Irecv");
    }
}

void MpiWork::complete(const std::vector<int>& indices, const std::vector<MPI_Status>& statuses) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
        Transfer& transfer = transfers_[static_cast<std::size_t>(indices[i])];
        if (transfer.receiving) {
            int bytes = 0;
            check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
            if (bytes != transfer.bytes) {
                core::raise<core::RunError>(
                        "rank {}: {}: rank {} sent {} bytes where {} were expected; the ranks are in "
                        "different operations",
                        engine_.rank(), what_, ranks_[static_cast<std::size_t>(transfer.peer)], bytes, transfer.bytes);
            }
        }
        transfer.bytes = 0;  // Done.
    }
}

void MpiWork::check_transfer(const Transfer& transfer, int code) const {
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    if (kind == MPI_ERR_TRUNCATE) {
        core::raise<core::RunError>(
                "rank {}: {}: rank {} sent more than the {} bytes that were expected; the ranks are in "
                "different operations",
                engine_.rank(), what_, ranks_[static_cast<std::size_t>(transfer.peer)], transfer.bytes);
    }
    check_mpi(code, what_.c_str());
}

bool MpiWork::step() {
    bool moved = false;
    while (true) {
        if (requests_.empty()) {
            if (stages_.empty()) return moved;
            const Stage stage = std::move(stages_.front());
            stages_.pop_front();
            stage(*this);
            moved = true;
            continue;
        }
        int finished = 0;
        std::vector<int> indices(requests_.size());
        std::vector<MPI_Status> statuses(requests_.size());
        const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &finished, indices.data(),
                                      statuses.data());
        if (code == MPI_ERR_IN_STATUS) {
            for (int i = 0; i < finished; ++i) {
                check_transfer(transfers_[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])],
                               statuses[static_cast<std::size_t>(i)].MPI_ERROR);
            }
        }
        check_mpi(code, what_.c_str());
        if (finished == MPI_UNDEFINED) {
            requests_.clear();
            transfers_.clear();
            continue;
        }
        if (finished == 0) return moved;
        moved = true;
        indices.resize(static_cast<std::size_t>(finished));
        complete(indices, statuses);
    }
}

bool MpiWork::advance() {
    if (done()) return true;
    engine_.advance_all();
    return done();
}

void MpiWork::synchronize() {
    double begin = core::now_s();
    int fruitless = 0;
    while (!done()) {
        if (engine_.advance_all()) {
            begin = core::now_s();
            fruitless = 0;
            continue;
        }
        if (++fruitless < kLooksBeforeSleep) {
            std::this_thread::yield();
            continue;
        }
        std::this_thread::sleep_for(kSleep);
        const double waited = core::now_s() - begin;
        if (engine_.wait_limit_s > 0 && waited > engine_.wait_limit_s) give_up(waited);
    }
}

void MpiWork::give_up(double seconds) const {
    std::set<int> peers;
    std::int64_t bytes = 0;
    for (const Transfer& transfer : transfers_) {
        if (transfer.bytes == 0) continue;
        peers.insert(ranks_[static_cast<std::size_t>(transfer.peer)]);
        bytes += transfer.bytes;
    }
    core::raise<core::RunError>(
            "rank {} waited {:.0f} s for rank{} {} in {}: {} bytes are outstanding; look at what {} "
            "last said, or raise parallel.wait_limit_s (now {})",
            engine_.rank(), seconds, peers.size() == 1 ? "" : "s", fmt::join(peers, ", "), what_, bytes,
            peers.size() == 1 ? "it" : "they", engine_.wait_limit_s);
}

}  // namespace tessera::parallel
