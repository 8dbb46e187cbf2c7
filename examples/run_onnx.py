"""Runs an exported policy without torch: python run_onnx.py policy.onnx Hopper-v4"""

import sys

import gymnasium
import onnxruntime

policy, env = onnxruntime.InferenceSession(sys.argv[1]), gymnasium.make(sys.argv[2])
obs, _ = env.reset(seed=0)
score, over = 0.0, False
while not over:
    (action,) = policy.run(["action"], {"observation": obs.astype("float32")})
    obs, reward, terminated, truncated, _ = env.step(action)
    score, over = score + float(reward), terminated or truncated
print(f"return {score:.2f}")
