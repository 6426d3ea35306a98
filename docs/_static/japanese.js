// What Sphinx and its copy button show by JavaScript and have not in Japanese. Only pages in Japanese load this file.
Documentation.addTranslations({
  messages: {
    "Search finished, found one page matching the search query.": ["${resultCount}ページが見つかりました。"],
    ", in ": " – ",
  },
  plural_expr: "0",
});
if (typeof messages !== "undefined") {
  Object.assign(messages.en, {
    copy: "コピー",
    copy_to_clipboard: "クリップボードにコピー",
    copy_success: "コピーしました",
    copy_failure: "コピーできませんでした",
  });
}
