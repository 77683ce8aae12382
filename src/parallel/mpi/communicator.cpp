#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "parallel/mpi/engine.h"
#include "parallel/reduction_tree.h"

namespace tessera::parallel {
namespace {

using core::Tensor;

/// Tags of collectives come round again after this many; no group has as many in flight.
constexpr int kSequences = 4096;
constexpr int kTagsPerCollective = 2;

class MpiCommunicator final : public Communicator {
public:
    MpiCommunicator(MpiWorld::Engine& engine, Axis axis, const std::vector<int>& ranks, int rank)
        : Communicator(axis, ranks, rank), engine_(engine) {
        MPI_Group world = MPI_GROUP_NULL;
        MPI_Group group = MPI_GROUP_NULL;
        check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
        check_mpi(MPI_Group_incl(world, size(), ranks.data(), &group), "MPI_Group_incl");
        check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, static_cast<int>(axis), &collectives_),
                  "MPI_Comm_create_group");
        MPI_Group_free(&group);
        MPI_Group_free(&world);
        check_mpi(MPI_Comm_set_errhandler(collectives_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check_mpi(MPI_Comm_dup(collectives_, &messages_), "MPI_Comm_dup");
    }

    ~MpiCommunicator() override {
        // Collective; beside a dead peer it would hang.
        if (std::uncaught_exceptions() > 0) return;
        MPI_Comm_free(&messages_);
        MPI_Comm_free(&collectives_);
    }

protected:
    Work start_all_reduce(const Tensor& tensor, ReduceOp op, Purpose purpose) override {
        const auto work = collective("all_reduce", purpose);
        const std::int64_t element = core::size_of(tensor.dtype());
        const Range own = chunk_of(tensor.numel(), size(), rank());
        const Tensor received = exchange_chunks(*work, tensor, own.count());
        work->then([this, tensor, op, own, element, received](MpiWork& w) {
            std::byte* result = tensor.bytes() + own.begin * element;
            reduce(tensor.dtype(), op, result, received, own.count(), result);
            gather_chunks(w, tensor);
        });
        engine_.add(work);
        return Work(work);
    }

    Work start_reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op, Purpose purpose) override {
        const auto work = collective("reduce_scatter", purpose);
        const Tensor received = exchange_chunks(*work, input, output.numel());
        work->then([this, input, output, op, received](MpiWork&) {
            reduce(input.dtype(), op, input.bytes() + rank() * output.nbytes(), received, output.numel(),
                   output.bytes());
        });
        engine_.add(work);
        return Work(work);
    }

    Work start_all_gather(const Tensor& input, const Tensor& output, Purpose purpose) override {
        const auto work = collective("all_gather", purpose);
        std::byte* own = output.bytes() + rank() * input.nbytes();
        if (own != input.bytes()) std::memmove(own, input.bytes(), static_cast<std::size_t>(input.nbytes()));
        work->then([this, output](MpiWork& w) { gather_chunks(w, output); });
        engine_.add(work);
        return Work(work);
    }

    // The root deals chunks out and the others pass them on: each link carries the tensor once, not the root's N times.
    Work start_broadcast(const Tensor& tensor, int root, Purpose purpose) override {
        const auto work = collective("broadcast", purpose);
        work->then([this, tensor, root](MpiWork& w) {
            if (rank() != root) return w.receive(chunk_bytes(tensor, rank()), chunk_nbytes(tensor, rank()), root);
            for (int peer = 0; peer < size(); ++peer) {
                if (peer != root) w.send(chunk_bytes(tensor, peer), chunk_nbytes(tensor, peer), peer);
            }
        });
        work->then([this, tensor, root](MpiWork& w) {
            for (int step = 1; step < size(); ++step) {
                const int to = (rank() + step) % size();
                const int from = (rank() - step + size()) % size();
                if (to != root) w.send(chunk_bytes(tensor, rank()), chunk_nbytes(tensor, rank()), to, 1);
                if (rank() != root) w.receive(chunk_bytes(tensor, from), chunk_nbytes(tensor, from), from, 1);
            }
        });
        engine_.add(work);
        return Work(work);
    }

    Work start_all_to_all(const Tensor& input, const Tensor& output, Purpose purpose) override {
        const auto work = collective("all_to_all", purpose);
        const std::int64_t bytes = input.nbytes() / size();
        std::memcpy(output.bytes() + rank() * bytes, input.bytes() + rank() * bytes, static_cast<std::size_t>(bytes));
        work->then([this, input, output, bytes](MpiWork& w) {
            for (int step = 1; step < size(); ++step) {
                const int to = (rank() + step) % size();
                const int from = (rank() - step + size()) % size();
                w.send(input.bytes() + to * bytes, bytes, to);
                w.receive(output.bytes() + from * bytes, bytes, from);
            }
        });
        engine_.add(work);
        return Work(work);
    }

    Work start_exchange(std::span<const Message> sends, std::span<const Message> receives, Purpose purpose) override {
        const auto work = std::make_shared<MpiWork>(engine_, messages_, ranks(), 0, what("exchange", purpose));
        const std::vector<Message> out(sends.begin(), sends.end());
        const std::vector<Message> in(receives.begin(), receives.end());
        work->then([out, in](MpiWork& w) {
            for (const Message& m : in) w.receive(m.tensor.bytes(), m.tensor.nbytes(), m.peer, m.tag);
            for (const Message& m : out) w.send(m.tensor.bytes(), m.tensor.nbytes(), m.peer, m.tag);
        });
        // Holds the tensors until the messages have gone.
        work->then([out, in](MpiWork&) {});
        engine_.add(work);
        return Work(work);
    }

    void start_barrier(Purpose purpose) override {
        const auto work = collective("barrier", purpose);
        const auto tokens = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size()) + 1);
        work->then([this, tokens](MpiWork& w) {
            for (int step = 1; step < size(); ++step) {
                const int from = (rank() - step + size()) % size();
                w.receive(tokens->data() + from, 1, from);
                w.send(&tokens->back(), 1, (rank() + step) % size());
            }
        });
        work->then([tokens](MpiWork&) {});
        engine_.add(work);
        work->synchronize();
    }

private:
    std::string what(const char* operation, Purpose purpose) {
        return fmt::format("{} {} of {} in the {} group", operation, sequence_, name_of(purpose), name_of(axis()));
    }
    std::shared_ptr<MpiWork> collective(const char* operation, Purpose purpose) {
        const int tag = static_cast<int>(sequence_ % kSequences) * kTagsPerCollective;
        ++sequence_;
        return std::make_shared<MpiWork>(engine_, collectives_, ranks(), tag, what(operation, purpose));
    }
    std::byte* chunk_bytes(const Tensor& tensor, int place) const {
        return tensor.bytes() + chunk_of(tensor.numel(), size(), place).begin * core::size_of(tensor.dtype());
    }
    std::int64_t chunk_nbytes(const Tensor& tensor, int place) const {
        return chunk_of(tensor.numel(), size(), place).count() * core::size_of(tensor.dtype());
    }

    /// Stage: everybody's chunk of `tensor` to its owner. What this rank will hold of the others, by place without its
    /// own.
    Tensor exchange_chunks(MpiWork& work, const Tensor& tensor, std::int64_t own) {
        Tensor received =
                Tensor::empty(engine_.pool(), {size() - 1, own}, tensor.dtype(), core::MemoryCategory::buffers);
        work.then([this, tensor, received](MpiWork& w) {
            const std::int64_t bytes = received.nbytes() / (size() - 1);
            for (int step = 1; step < size(); ++step) {
                const int to = (rank() + step) % size();
                const int from = (rank() - step + size()) % size();
                w.receive(received.bytes() + (from < rank() ? from : from - 1) * bytes, bytes, from);
                w.send(chunk_bytes(tensor, to), chunk_nbytes(tensor, to), to);
            }
        });
        return received;
    }

    /// Messages: this rank's chunk to the others, theirs into place.
    void gather_chunks(MpiWork& w, const Tensor& tensor) const {
        for (int step = 1; step < size(); ++step) {
            const int to = (rank() + step) % size();
            const int from = (rank() - step + size()) % size();
            w.receive(chunk_bytes(tensor, from), chunk_nbytes(tensor, from), from, 1);
            w.send(chunk_bytes(tensor, rank()), chunk_nbytes(tensor, rank()), to, 1);
        }
        w.then([tensor](MpiWork&) {});  // Holds it until the messages have gone.
    }

    void reduce(core::DType dtype, ReduceOp op, const std::byte* own, const Tensor& received, std::int64_t count,
                std::byte* output) const {
        const std::int64_t bytes = count * core::size_of(dtype);
        std::vector<const std::byte*> inputs;
        for (int place = 0; place < size(); ++place) {
            inputs.push_back(place == rank() ? own : received.bytes() + (place < rank() ? place : place - 1) * bytes);
        }
        reduce_in_tree_order(dtype, op, inputs, output, count);
    }

    MpiWorld::Engine& engine_;
    MPI_Comm collectives_ = MPI_COMM_NULL;
    MPI_Comm messages_ = MPI_COMM_NULL;
    std::int64_t sequence_ = 0;
};

}  // namespace

MpiWorld::MpiWorld(core::MemoryPool& pool) : engine_(std::make_unique<Engine>(pool)) {}
MpiWorld::~MpiWorld() = default;

int MpiWorld::rank() const {
    return engine_->rank();
}
int MpiWorld::size() const {
    return engine_->size();
}
void MpiWorld::set_wait_limit_s(double seconds) {
    engine_->wait_limit_s = seconds;
}

std::unique_ptr<Communicator> MpiWorld::make_group(Axis axis, const std::vector<int>& ranks, int rank) {
    if (ranks.size() == 1) return make_self_communicator(axis, ranks.front());
    return std::make_unique<MpiCommunicator>(*engine_, axis, ranks, rank);
}

void MpiWorld::abort(int exit_code) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::abort();
}

bool started_by_mpi() {
    return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

}  // namespace tessera::parallel
