"""Chapter 3: lossless and lossy BPE and Unigram tokenizers, written as folders that AutoTokenizer loads."""
