"""Chapter 7: export to FasterTransformer and CTranslate2, and serving the exported folder with Triton.

The way of a request: `ask` and `Client.infer` (client.py) send it. In the process that has the model, `execute`
(triton_model.py) or, without Triton, `do_POST` (server.py) reads and checks it (request.py) and calls
`Scheduler.submit` (scheduler.py). The scheduler's thread calls `TextBatch.step` for each token, and that calls `draw`
(engine.py). Which model and which tensors Triton serves, it reads from the folder that repository.py writes.
"""
