#include "rpc/compatibility.h"

#include "rpc/sampling.h"
#include "rpc/status.h"
#include "session/prefix-hash.h"

#include <cctype>

namespace dgr {

static constexpr size_t KEY_BYTES = 32;
static constexpr size_t MAX_SESSION_ID = 64;

static std::string hex(const std::string & bytes) {
    Digest digest{};
    if (bytes.size() != digest.size()) {
        return std::to_string(bytes.size()) + " bytes";
    }
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    return as_hex(digest);
}

static grpc::Status malformed(const std::string & field, const std::string & reason, const std::string & legal) {
    return rejected(grpc::StatusCode::INVALID_ARGUMENT, field, reason, legal);
}

// OK when both are equal.
template <class Value>
static grpc::Status same(const std::string & field, const Value & asked, const Value & held) {
    if (asked == held) {
        return grpc::Status::OK;
    }
    auto text = [](const auto & value) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
            return std::to_string(value);
        } else {
            return value;
        }
    };
    return rejected(grpc::StatusCode::FAILED_PRECONDITION, field, "is " + text(asked) + ", this stage has " + text(held), text(held));
}

static grpc::Status first_failure(std::initializer_list<grpc::Status> statuses) {
    for (const grpc::Status & status : statuses) {
        if (!status.ok()) {
            return status;
        }
    }
    return grpc::Status::OK;
}

static grpc::Status check_form(const wire::OpenSessionRequest & request) {
    const std::string & id = request.session();
    bool plain = !id.empty() && id.size() <= MAX_SESSION_ID;
    for (unsigned char c : id) {
        plain = plain && (std::isalnum(c) || c == '-' || c == '_');
    }
    if (!plain) {
        return malformed("session", "is not a session id", "1 to 64 of A-Z a-z 0-9 - _");
    }
    if (request.epoch() == 0) {
        return malformed("epoch", "is 0", "1 and up");
    }
    if (request.key().size() != KEY_BYTES) {
        return malformed("key", "has " + std::to_string(request.key().size()) + " bytes", "32 random bytes");
    }
    if (request.cache().n_ctx() == 0) {
        return malformed("cache.n_ctx", "is 0", "the positions that the session may need");
    }
    return grpc::Status::OK;
}

static grpc::Status check_cache(const wire::CacheExpectation & cache, const wire::DescribeResponse & self) {
    const wire::Numerics & held = self.numerics();
    return first_failure({
        same("cache.type_k", cache.type_k(), held.type_k()),
        same("cache.type_v", cache.type_v(), held.type_v()),
        same("cache.n_ubatch", cache.n_ubatch(), held.n_ubatch()),
        same("cache.flash_attn", cache.flash_attn(), held.flash_attn()),
        same("cache.state_schema_version", cache.state_schema_version(), self.state_schema_version()),
    });
}

// What neighbours must agree in, whatever their place; in numerics too unless the route is mixed.
static grpc::Status check_peer(
    const std::string & name, const wire::Peer & peer, const wire::DescribeResponse & self, bool mixed) {
    return first_failure({
        same(name + ".patched_tree", peer.patched_tree(), self.build().patched_tree()),
        same(name + ".artifact_digest", peer.artifact_digest(), self.artifact().digest()),
        same(name + ".boundary_digest", hex(peer.boundary_digest()), hex(self.boundary().digest())),
        same(name + ".n_ubatch", peer.n_ubatch(), self.numerics().n_ubatch()),
        mixed ? grpc::Status::OK
              : same(name + ".numerics_digest", hex(peer.numerics_digest()), hex(self.numerics().digest())),
    });
}

static grpc::Status check_predecessor(const wire::OpenSessionRequest & request, const wire::DescribeResponse & self) {
    if (!request.has_predecessor()) {
        return malformed("predecessor", "missing", "the client on the head, the stage before on others");
    }
    const wire::Peer & peer = request.predecessor();
    const bool head = self.range().first() == 0;
    if (peer.client() != head) {
        return rejected(grpc::StatusCode::FAILED_PRECONDITION, "predecessor.client",
            head ? "the head takes frames from the client" : "this stage is not the head", head ? "true" : "false");
    }
    if (head) {
        return grpc::Status::OK;
    }
    if (peer.instance().empty()) {
        return malformed("predecessor.instance", "is empty", "the instance that Describe states");
    }
    return first_failure({
        same("predecessor.range.last", peer.range().last(), self.range().first()),
        check_peer("predecessor", peer, self, request.mixed()),
    });
}

// Clients name the next stage, so a worker connects only where its operator lets it.
static grpc::Status check_successor_address(const std::string & text, const AllowList & allowed) {
    const auto address = Address::parse(text);
    if (!address) {
        return malformed("successor_address", "'" + text + "' is not an address", "HOST:PORT, [HOST]:PORT for IPv6");
    }
    if (!allowed.allows(*address)) {
        return rejected(grpc::StatusCode::PERMISSION_DENIED, "successor_address",
            text + " is not among the next stages that this worker may connect to; start it with --allow-next " + text,
            allowed.to_text());
    }
    return grpc::Status::OK;
}

static grpc::Status check_successor_form(
    const wire::OpenSessionRequest & request, const wire::DescribeResponse & self, const AllowList & allowed) {
    const bool tail = self.range().last() == self.artifact().n_layer();
    if (tail != !request.has_successor() || tail != request.successor_address().empty()) {
        return rejected(grpc::StatusCode::FAILED_PRECONDITION, "successor",
            tail ? "the tail has none" : "missing on a stage that is not the tail", tail ? "absent" : "the next stage and its address");
    }
    if (tail) {
        return grpc::Status::OK;
    }
    return first_failure({
        check_successor_address(request.successor_address(), allowed),
        same("successor.range.first", request.successor().range().first(), self.range().last()),
        check_peer("successor", request.successor(), self, request.mixed()),
    });
}

grpc::Status check_open(
    const wire::OpenSessionRequest & request, const wire::DescribeResponse & self, const AllowList & allowed) {
    const std::string & lane = request.lane_digest().empty() ? self.build().lane_digest() : request.lane_digest();
    return first_failure({
        check_form(request),
        same("artifact_digest", request.artifact_digest(), self.artifact().digest()),
        same("range", to_text(request.range()), to_text(self.range())),
        same("lane_digest", lane, self.build().lane_digest()),
        same("numerics_digest", hex(request.numerics_digest()), hex(self.numerics().digest())),
        check_cache(request.cache(), self),
        check_predecessor(request, self),
        check_successor_form(request, self, allowed),
        check_sampling(request, self.range().last() == self.artifact().n_layer()),
    });
}

grpc::Status check_successor(
    const wire::OpenSessionRequest & request, const wire::DescribeResponse & self, const wire::DescribeResponse & successor) {
    wire::Peer peer;
    peer.set_patched_tree(successor.build().patched_tree());
    peer.set_artifact_digest(successor.artifact().digest());
    peer.set_boundary_digest(successor.boundary().digest());
    peer.set_n_ubatch(successor.numerics().n_ubatch());
    peer.set_numerics_digest(successor.numerics().digest());
    return first_failure({
        same("successor.instance", request.successor().instance(), successor.instance()),
        same("successor.range", to_text(request.successor().range()), to_text(successor.range())),
        same("successor.range.first", successor.range().first(), self.range().last()),
        check_peer("successor", peer, self, request.mixed()),
    });
}

}  // namespace dgr
