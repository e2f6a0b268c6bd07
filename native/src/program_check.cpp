// Whether a program's operations fit together.
#include <stdexcept>
#include <string>

#include "program.hpp"

namespace headstart {

// A list that fits together cannot reach outside its registers, whatever rows come.
void Program::check_ops() const {
  const auto demand = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string("the program does not fit together: ") + what);
  };
  const auto reg = [&](int index) -> const Register& {
    demand(index >= 0 && static_cast<size_t>(index) < registers_.size(), "unknown register");
    return registers_[static_cast<size_t>(index)];
  };
  const auto weights = [&](int index) -> const Matrix& {
    demand(weights_->has_matrix(index), "unknown matrix");
    return matrix(index);
  };
  const auto vector_of = [&](int index, int width) {
    demand(weights_->has_vector(index), "unknown vector");
    demand(static_cast<int>(weights_->vector(index).size()) >= width, "a vector is too short");
  };
  const auto alike = [&](int a, int b) {
    demand(reg(a).width == reg(b).width && reg(a).wanted_only == reg(b).wanted_only, "registers differ");
  };
  demand(reg(logits_register_).wanted_only, "logits are of wanted rows");
  for (const Op& op : ops_) {
    const AttentionShape& shape = op.attention;
    switch (op.kind) {
      case OpKind::kEmbed:
        demand(weights(op.weight).k == reg(op.out).width && !reg(op.out).wanted_only, "embedding");
        demand(weights(op.weight).n >= vocab_size(), "the embedding has fewer rows than there are logits");
        break;
      case OpKind::kState:
        demand(op.at >= 0 && !reg(op.out).wanted_only, "a state");
        break;
      case OpKind::kKeep:
        demand(op.at >= 0 && !reg(op.in).wanted_only, "what is kept");
        break;
      case OpKind::kCopy:
        demand(op.at >= 0 && op.at + reg(op.in).width <= reg(op.out).width, "a part is wider than the whole");
        demand(reg(op.in).wanted_only == reg(op.out).wanted_only, "registers differ in rows");
        break;
      case OpKind::kSilu:
        alike(op.in, op.out);
        demand(reg(op.in).width % kTile == 0, "width");
        break;
      case OpKind::kNorm:
        alike(op.out, op.in);
        demand(op.span > 0 && op.span % kTile == 0 && reg(op.in).width % op.span == 0, "norm");
        vector_of(op.weight, op.span);
        break;
      case OpKind::kLinear:
        for (const LinearPart& part : op.parts) {
          demand(weights(part.matrix).k == reg(op.in).width && matrix(part.matrix).n == reg(part.destination).width,
                 "a matrix has another shape than its registers");
          demand(reg(op.in).wanted_only == reg(part.destination).wanted_only, "registers differ in rows");
          if (part.bias >= 0) vector_of(part.bias, reg(part.destination).width);
        }
        break;
      case OpKind::kRotate:
        demand(op.span > 0 && reg(op.in).width % op.span == 0 && !reg(op.in).wanted_only, "rotation");
        demand(static_cast<int>(inverse_frequencies_.size()) * 2 <= op.span, "more frequencies than a head has pairs");
        break;
      case OpKind::kStore:
      case OpKind::kAttention:
        demand(op.layer >= 0 && op.layer < cache_shape_.num_layers, "layer");
        demand(shape.num_kv_heads == cache_shape_.num_kv_heads && shape.head_dim == cache_shape_.head_dim &&
                   shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 && shape.head_dim % kTile == 0,
               "attention's heads differ from the cache's");
        if (op.kind == OpKind::kStore) {
          alike(op.in, op.in2);
          demand(reg(op.in).width == shape.num_kv_heads * shape.head_dim && !reg(op.in).wanted_only, "keys");
        } else {
          alike(op.in, op.out);
          demand(reg(op.in).width == shape.num_heads * shape.head_dim && !reg(op.in).wanted_only, "queries");
        }
        break;
      case OpKind::kGate:
      case OpKind::kAdd:
        alike(op.in, op.in2);
        alike(op.in, op.out);
        demand(reg(op.in).width % kTile == 0, "width");
        break;
      case OpKind::kSelect:
        demand(reg(op.in).width == reg(op.out).width && reg(op.out).wanted_only && !reg(op.in).wanted_only, "select");
        break;
      case OpKind::kQuantise:
        break;
    }
  }
}

}  // namespace headstart
