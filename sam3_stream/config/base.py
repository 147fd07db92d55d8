"""What every config model has in common."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Frozen, and knows every key it may have."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
