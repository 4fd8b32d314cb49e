/* Numbers as people type them: .5, 0,5, 1/2, ½, −2, 30 %, 5 nats, 105,000, 105k. predict.js and answer.js read them with this. */
(() => {
  "use strict";
  const PARTS = { "\u00bd": 0.5, "\u00bc": 0.25, "\u00be": 0.75 };
  const THOUSANDS = /^-?[1-9]\d{0,2}([,\s]\d{3})+(?!\d)/; // 1,234: where the answer is large, a thousand; elsewhere it may be 1.234, and is none
  window.minirlhfNumber = (words, answer = 0) => {
    let plain = words.trim().replace("\u2212", "-").replace(/[^\d.,\/\u00bc-\u00be]+$/, "");
    if (THOUSANDS.test(plain)) {
      if (Math.abs(answer) < 100) return NaN;
      plain = plain.replace(/[,\s]/g, "");
    }
    if (/\d\s*k\b/i.test(words)) plain += "e3"; // 105k
    const part = plain.match(/^(-?\d*)([\u00bc-\u00be])$/), ratio = plain.match(/^(-?\d+)\/([1-9]\d*)$/);
    if (part) return (part[1].startsWith("-") ? -1 : 1) * (Math.abs(Number(part[1].replace(/^-$/, ""))) + PARTS[part[2]]);
    if (ratio) return ratio[1] / ratio[2];
    const point = plain.replace(/^(-?\d*),(\d+)$/, "$1.$2");
    return /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(point) ? Number(point) : NaN;
  };
})();
