'use strict';
const live = document.getElementById('live'), trouble = document.getElementById('trouble');
const say = text => { trouble.textContent = text; trouble.hidden = !text; };
let notice = '';

const update = async () => {
  try {
    const answer = await fetch('/status', {cache: 'no-store'});
    if (!answer.ok) throw new Error(await answer.text());
    const html = await answer.text();
    // A button that is being pressed stays.
    if (!live.querySelector('button:active')) {
      const at = live.contains(document.activeElement) && document.activeElement.dataset.kill;
      live.innerHTML = html;
      if (at) live.querySelector(`[data-kill="${CSS.escape(at)}"]`)?.focus();
    }
    say(notice);
  } catch (e) {
    say('This page is out of date, because its last request to the lighthouse failed: ' + e.message);
  }
  setTimeout(update, document.hidden ? 5000 : 1000);
};

const kill = async (id, asked) => {
  const headers = {}, token = sessionStorage.getItem('token');
  if (token) headers.Authorization = 'Bearer ' + token;
  const answer = await fetch(`/replica/${encodeURIComponent(id)}/kill`, {method: 'POST', headers});
  const text = (await answer.text()).trim();
  if (answer.status === 403 && !asked && text.includes('needs the token')) {
    const given = prompt('Enter the kill token of the lighthouse:');
    if (!given) return 'Not killed: no token was given.';
    sessionStorage.setItem('token', given);
    return kill(id, true);
  }
  if (answer.status === 403) sessionStorage.removeItem('token');
  return answer.ok ? `Killed ${id}.` : `Not killed: ${text}`;
};

live.addEventListener('click', async event => {
  const id = event.target.dataset.kill;
  if (id === undefined || !confirm(`Kill ${id}?\nIts manager exits with code 1, and its current step is lost.`)) return;
  try {
    notice = await kill(id, false);
  } catch (e) {
    notice = 'Not killed: ' + e.message;
  }
  say(notice);
  setTimeout(() => { notice = ''; }, 10000);
});
setTimeout(update, 1000);
