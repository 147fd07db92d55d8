"""Live video to and from browsers: WHEP viewers that share renditions, WHIP publishers."""
