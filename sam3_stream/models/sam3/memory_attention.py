"""Memory attention: what the objects' memories make of the features of the current picture."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from sam3_stream.models.sam3.memory_bank import MemoryBank, MemoryGroup, to_map
from sam3_stream.models.sam3.network import TrackerNetwork
from sam3_stream.models.sam3.positions import PositionTables


class MemoryAttention:
    """Conditions features on memories, for all objects of a group at once.

    Differs from the reference, which goes object by object, in one more thing: what the first layer does before it
    looks at memories is the same for every object and is done once a frame.
    """

    def __init__(self, network: TrackerNetwork) -> None:
        self._network = network
        self._layers = network.tracker.memory_attention.layers

    def begin(self, embedding_1chw: torch.Tensor, tables: PositionTables) -> torch.Tensor:
        """The part that is the same for all objects: (1, 1, grid*grid, channels)."""
        features = embedding_1chw.flatten(2).transpose(1, 2) + 0.1 * tables.features_l1c
        return _attend_to_itself(self._layers[0], features[:, None], tables)

    def attend(
        self, begun_11lc: torch.Tensor, bank: MemoryBank, group: MemoryGroup, tables: PositionTables
    ) -> torch.Tensor:
        """Condition on the group's memories: (n, channels, grid, grid)."""
        keys, positions, pointer_tokens = self._memory_tokens(bank, group, tables)
        hidden = begun_11lc
        for number, layer in enumerate(self._layers):
            if number > 0:
                hidden = _attend_to_itself(layer, hidden, tables)
            hidden = hidden + _rotary_attention(
                layer.cross_attn_image, layer.layer_norm2(hidden), keys + positions, keys, tables, pointer_tokens
            )
            hidden = hidden + layer.linear2(layer.activation(layer.linear1(layer.layer_norm3(hidden))))
        hidden = self._network.tracker.memory_attention.layer_norm(hidden)
        return to_map(hidden[:, 0].transpose(1, 2), tables.grid)

    def _memory_tokens(
        self, bank: MemoryBank, group: MemoryGroup, tables: PositionTables
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Keys and their positions, (n, 1, tokens, memory_channels), and how many of the tokens are pointers."""
        tracker, dtype, device = self._network.tracker, self._network.stream_dtype, self._network.device
        slots = torch.from_numpy(group.slots_n).to(device)[:, None]
        memories = bank.memories_selc[slots, torch.from_numpy(group.entries_nm).to(device)].to(dtype)
        pointers = bank.pointers_spc[slots, torch.from_numpy(group.pointers_np).to(device)]
        splits = pointers.shape[-1] // tracker.mem_dim
        pointers = pointers.reshape(len(pointers), -1, tracker.mem_dim)
        keys = torch.cat([memories.flatten(1, 2), pointers], dim=1)

        temporal = tracker.memory_temporal_positional_encoding.flatten(1)  # the last row is for conditioning memories
        offsets, ages = group.offsets_nm, group.pointer_ages_np
        if (offsets == offsets[:1]).all() and (ages == ages[:1]).all():
            offsets, ages = offsets[:1], ages[:1]  # one row of positions serves all objects
        positions = temporal[torch.from_numpy(offsets - 1).to(device)]
        positions = (tables.memory_lm + positions[:, :, None]).flatten(1, 2)
        pointer_positions = self._pointer_positions(torch.from_numpy(ages).to(device))
        positions = torch.cat([positions, pointer_positions.repeat_interleave(splits, dim=1)], dim=1)
        return keys[:, None], positions[:, None], pointers.shape[1]

    def _pointer_positions(self, ages_np: torch.Tensor) -> torch.Tensor:
        """Positions of pointers by age, (n, p, memory_channels)."""
        tracker, config = self._network.tracker, self._network.config
        if not config.enable_temporal_pos_encoding_for_object_pointers:
            return ages_np.new_zeros((*ages_np.shape, tracker.mem_dim), dtype=self._network.stream_dtype)
        relative = ages_np.float() / (config.max_object_pointers_in_encoder - 1)
        waves = _sine_positions(relative, tracker.hidden_dim).to(self._network.stream_dtype)
        positions: torch.Tensor = tracker.temporal_positional_encoding_projection_layer(waves)
        return positions


def _attend_to_itself(layer: Any, hidden_n1lc: torch.Tensor, tables: PositionTables) -> torch.Tensor:
    normed = layer.layer_norm1(hidden_n1lc)
    return hidden_n1lc + _rotary_attention(layer.self_attn, normed, normed, normed, tables)


def _rotary_attention(
    attention: Any,
    queries_n1lc: torch.Tensor,
    keys_n1mc: torch.Tensor,
    values_n1mc: torch.Tensor,
    tables: PositionTables,
    unrotated: int = 0,
) -> torch.Tensor:
    """`Sam3TrackerVideoRoPEAttention` in fewer passes over the keys.

    Args:
        attention: The module.
        queries_n1lc: Queries, or (1, …) when they are the same for all n.
        keys_n1mc: Keys, of which the last `unrotated` have no place in the picture.
        values_n1mc: Values.
        tables: Positional tables.
        unrotated: See above.
    """

    def heads(projected: torch.Tensor) -> torch.Tensor:
        count, _, tokens, _ = projected.shape
        return projected.view(count, tokens, attention.num_attention_heads, -1).transpose(1, 2)

    keys = heads(attention.k_proj(keys_n1mc))
    queries = rotate(heads(attention.q_proj(queries_n1lc)), tables.rotary_lc).expand(len(keys), -1, -1, -1)
    rotated = rotate(keys[:, :, : keys.shape[2] - unrotated], tables.rotary_lc)
    if unrotated:
        rotated = torch.cat([rotated, keys[:, :, -unrotated:]], dim=2)
    attended = functional.scaled_dot_product_attention(
        queries, rotated, heads(attention.v_proj(values_n1mc)), scale=attention.scaling
    )
    result: torch.Tensor = attention.o_proj(attended.transpose(1, 2).flatten(2)[:, None])
    return result


def rotate(tokens_nhlc: torch.Tensor, rotary_lc: torch.Tensor) -> torch.Tensor:
    """Turn pairs of channels by the angles of each token's place; tokens of several pictures follow each other."""
    count, heads, tokens, channels = tokens_nhlc.shape
    places, pairs = rotary_lc.shape
    numbers = tokens_nhlc.float().reshape(count, heads, tokens // places, places, pairs, 2)
    turned = torch.view_as_real(torch.view_as_complex(numbers) * rotary_lc)
    return turned.reshape(count, heads, tokens, channels).to(tokens_nhlc.dtype)


def _sine_positions(positions: torch.Tensor, channels: int, temperature: float = 10000.0) -> torch.Tensor:
    """Sine and cosine of a number, as in "Attention is all you need": (..., channels), float32."""
    half = channels // 2
    steps = torch.arange(half, dtype=torch.float32, device=positions.device)
    angles = positions[..., None] / temperature ** (2 * (steps // 2) / half)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
