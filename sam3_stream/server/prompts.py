"""Prompts of a stream: say what to track, correct it, take it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, HTTPException, Path

from sam3_stream.core.prompts import PromptEffect
from sam3_stream.server.acknowledged import acknowledged
from sam3_stream.server.messages import AnyPrompt, Effect, FrameView, PromptView, prompt_of
from sam3_stream.server.streams import StreamName

if TYPE_CHECKING:
    from sam3_stream.server.app import Preview

PromptId = Annotated[str, Path(max_length=32)]
_MOST_PROMPTS = 200


def router(preview: Preview) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["prompts"])
    stream_of = preview.service.preview_stream

    @routes.get("/streams/{name}/prompts")
    async def list_prompts(name: StreamName) -> list[PromptView]:
        """What has been said and still holds."""
        return [PromptView.of(each) for each in stream_of(name).prompts]

    @routes.post("/streams/{name}/prompts", status_code=201)
    async def add_prompt(name: StreamName, prompt: AnyPrompt) -> Effect:
        """Say what to track, or correct an object. Answered when a frame has been tracked with it."""
        stream = stream_of(name)
        if len(stream.prompts) >= _MOST_PROMPTS:
            raise HTTPException(409, f"{_MOST_PROMPTS} prompts hold already; take some back first")
        asked = stream.add_prompt(prompt_of(prompt), object_id=prompt.object, seen=prompt.frame)
        return _effect(await acknowledged(asked))

    @routes.put("/streams/{name}/prompts/{prompt_id}")
    async def replace_prompt(name: StreamName, prompt_id: PromptId, prompt: AnyPrompt) -> Effect:
        """Put a prompt in the place of another; the object, or the phrase, keeps its id."""
        asked = stream_of(name).replace_prompt(prompt_id, prompt_of(prompt), seen=prompt.frame)
        return _effect(await acknowledged(asked))

    @routes.delete("/streams/{name}/prompts/{prompt_id}")
    async def remove_prompt(name: StreamName, prompt_id: PromptId) -> FrameView:
        """Take back a prompt: its object, or all objects of a phrase, end."""
        return FrameView(frame=await acknowledged(stream_of(name).remove_prompt(prompt_id)))

    return routes


def _effect(effect: PromptEffect) -> Effect:
    return Effect(prompt=effect.prompt_id, object=effect.object_id, frame=effect.sequence)
