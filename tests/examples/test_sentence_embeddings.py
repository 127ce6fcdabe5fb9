from __future__ import annotations

import sentence_embeddings
import torch
from sentence_embeddings import ANSWERS, QUESTIONS


def test_the_job_equals_the_cpu(device: str) -> None:
    result = sentence_embeddings.run(device)
    assert result.passed, result.result
    assert result.figures["difference"] <= sentence_embeddings.TOLERANCE
    assert result.figures["answers_found"] == len(QUESTIONS)
    assert result.figures["counters"]["fallbacks"] == {}


def test_answers_found_counts_the_nearest() -> None:
    count = len(QUESTIONS)
    assert len(ANSWERS) == count
    vectors = torch.eye(count)
    assert sentence_embeddings.answers_found(torch.cat([vectors, vectors])) == count
    swapped = vectors[[1, 0, *range(2, count)]]
    assert sentence_embeddings.answers_found(torch.cat([vectors, swapped])) == count - 2
