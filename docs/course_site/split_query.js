/**
 * Divides a query into terms of the index, for English and Japanese (docs/course_site/search.py).
 *
 * A run of Japanese characters is covered with terms of the index, so that as few characters as possible are left, and
 * with as few terms as possible. Hiragana beside other characters is an inflected ending or a particle, and is dropped.
 */
var splitQuery = (query) => {
  const index = Search._index || {};
  const lists = [index.terms || {}, index.titleterms || {}];
  const known = (term) => lists.some((list) => Object.hasOwn(list, term));
  const pages = (term) => lists.reduce((sum, list) => sum + (Object.hasOwn(list, term) ? [list[term]].flat().length : 0), 0);

  // The pieces of a run, from left to right: terms of the index, and what is left between them.
  const cover = (run) => {
    const LEFT = 100;
    const best = [{ cost: 0 }];
    for (let end = 1; end <= run.length; end++) {
      best[end] = { cost: best[end - 1].cost + LEFT, start: end - 1, isTerm: false };
      for (let start = 0; start < end; start++) {
        const cost = best[start].cost + 1;
        if (cost < best[end].cost && known(run.slice(start, end))) best[end] = { cost, start, isTerm: true };
      }
    }
    const pieces = [];
    for (let end = run.length; end > 0; end = best[end].start) {
      const { start, isTerm } = best[end];
      const next = pieces[0];
      if (!isTerm && next && !next.isTerm) next.text = run.slice(start, end) + next.text;
      else pieces.unshift({ text: run.slice(start, end), isTerm });
    }
    return pieces.map((piece) => piece.text);
  };

  // Sphinx looks for a part of a term only from three characters on: two stand for the commonest term with them.
  const longer = (part) =>
    lists
      .flatMap((list) => Object.keys(list))
      .filter((term) => part.length === 2 && term.includes(part))
      .reduce((most, term) => (pages(term) > pages(most) ? term : most), part);

  const japanese = (run) => {
    if (/^[HIRAGANAー]+$/.test(run)) return [run];
    const terms = cover(run).flatMap((piece) =>
      known(piece) ? [piece] : piece.split(/[HIRAGANA]+/).map((part) => part.replace(/ー$/, "")),
    );
    const kept = terms.filter((term) => term && !/^[HIRAGANAー]+$/.test(term));
    return kept.length === 1 && !known(kept[0]) ? kept.map(longer) : kept;
  };

  return query
    .normalize("NFKC")
    .split(/([JAPANESE]+)/)
    .flatMap((part, number) =>
      number % 2 ? japanese(part) : part.split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/u).filter(Boolean),
    );
};
