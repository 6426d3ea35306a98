"""Chapter 3: BPE and Unigram tokenizers, lossless or lossy, written as folders that AutoTokenizer loads."""
