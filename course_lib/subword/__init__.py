"""Chapter 3: tokenizers. BPE and Unigram, lossless or as the recipes, as folders that AutoTokenizer loads."""
