"""Chapter 7: export to FasterTransformer and CTranslate2, and serving the exported folder with Triton.

The way of a request: `ask` and `Client.infer` (client.py) send it. In the process that has the model, `execute`
(triton_model.py) or, without Triton, `do_POST` (server.py) reads and checks it (request.py) and calls
`Scheduler.submit` (scheduler.py). The scheduler's thread calls `TextBatch.join` for a text's first token and
`TextBatch.step` for each further one; both call `adjust`, which changes the logits, and `draw` (engine.py). Which model
and which tensors Triton serves, it reads from the folder that repository.py writes.

Without Triton, `course serve --openai` (openai_server.py) speaks OpenAI's protocol (completions.py): its requests use
the same scheduler, and each token goes to a `TextStream` (text_stream.py) as it is drawn.

The other modules: layout.py is the table of FasterTransformer's files, which export.py and ft_source.py write, check.py
checks, reader.py and ft_settings.py read, and ft_import.py turns back; ct2.py, ct2_generate.py and gguf_export.py are
for CTranslate2 and GGUF. demo.py is a page in the browser that uses no server of these; writers.py, demo_models.py and
chat.py are the models that it shows.
"""
